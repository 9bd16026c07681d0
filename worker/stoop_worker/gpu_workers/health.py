"""The probes and the ready file of all workers together, and the end of workers that are stuck."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from stoop_worker.gpu_workers.member import Member

__all__ = ["GroupHealth"]

log = structlog.get_logger(__name__)

_LOOK_SECONDS = 0.5
_PROBE_SECONDS = 10.0
_MOST_MISSES = 3


@dataclass(slots=True)
class GroupHealth:
    """Ready while any worker is, alive while any may run again; any thread may call the probes.

    A worker whose own `/healthz` was well once and then fails three times in a row is ended, and started again.
    """

    members: Sequence[Member]
    answers: Callable[[Member, str], bytes | None]
    ready_file: Path | None = None
    period: float = _PROBE_SECONDS
    _started: bool = field(default=False, init=False)
    _misses: dict[tuple[str, int], int] = field(default_factory=dict, init=False)

    def not_alive(self) -> str | None:
        """Return the reason to restart the parent, or None."""
        return "no GPU has a worker any more" if all(member.given_up for member in self.members) else None

    def not_started(self) -> str | None:
        """Return the reason that no worker has started, or None."""
        return None if self._started or self._is_ready() else "no worker has been ready yet"

    def not_ready(self) -> str | None:
        """Return the reason that no worker claims jobs, or None."""
        return None if self._is_ready() else "no worker claims jobs"

    async def run(self) -> None:
        """Keep the ready file up to date and end stuck workers, until cancelled."""
        probing = asyncio.create_task(self._probe_for_ever())
        try:
            while True:
                self._keep_file()
                await asyncio.sleep(_LOOK_SECONDS)
        finally:
            probing.cancel()
            self._remove_file()

    async def probe(self) -> None:
        """Ask each worker once whether it is alive, and end those that have failed too often."""
        alive = await asyncio.gather(*(asyncio.to_thread(self.answers, member, "/healthz") for member in self.members))
        for member, answer in zip(self.members, alive, strict=True):
            process = member.device.name, member.restarted  # each process must be well once before it can be stuck
            if answer is not None:
                self._misses[process] = 0
            elif not member.running:
                self._misses.pop(process, None)
            elif process in self._misses:
                self._misses[process] += 1
                if self._misses[process] >= _MOST_MISSES:
                    del self._misses[process]
                    member.kill()

    async def _probe_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self.period)
            try:
                await self.probe()
            except Exception:  # any defect: without probes, a worker that is stuck would run for ever
                log.exception("the workers could not be probed; the next probe tries again")

    def _is_ready(self) -> bool:
        ready = any(member.ready for member in self.members)
        self._started = self._started or ready
        return ready

    def _keep_file(self) -> None:
        if self.ready_file is None:
            return
        if self._is_ready():
            with contextlib.suppress(OSError):
                self.ready_file.touch()
        else:
            self._remove_file()

    def _remove_file(self) -> None:
        if self.ready_file is not None:
            with contextlib.suppress(OSError):
                self.ready_file.unlink(missing_ok=True)
