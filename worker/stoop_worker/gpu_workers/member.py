"""One worker's process: started, watched, and started again after a failure."""

import asyncio
import contextlib
import signal
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from stoop_worker.gpu_workers.device_lock import DeviceLock
from stoop_worker.gpu_workers.devices import Device
from stoop_worker.jobs.backoff import Backoff

__all__ = ["BAD_CONFIGURATION", "LOOPBACK", "Member", "Restarts"]

log = structlog.get_logger(__name__)

BAD_CONFIGURATION = 2
"""The exit code of a worker whose configuration must change first."""

LOOPBACK = "127.0.0.1"
"""The address on which a worker serves its metrics to the parent."""

_LOOK_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Restarts:
    """The rule for starting a failed worker again; times are in seconds.

    The wait doubles from `first` to `longest`. After `most` failures in a row the worker is given up; one that ran for
    `healthy` begins to count again.
    """

    first: float = 1.0
    longest: float = 60.0
    most: int = 8
    healthy: float = 600.0


@dataclass(slots=True)
class Member:
    """The worker of one device; `run` keeps it running until `stop`.

    Each start waits at most `wait_seconds` for `lock` and `port`: the worker of a parent that was killed keeps its
    GPU and its port until it has drained. A worker that starts without them is tried again if it fails, even with
    `BAD_CONFIGURATION`, because the GPU's memory or the port may be free later.
    """

    device: Device
    command: Sequence[str]
    environment: Mapping[str, str]
    ready_file: Path
    port: int | None = None
    wait_seconds: float = 60.0
    lock: DeviceLock | None = None
    restarts: Restarts = field(default_factory=Restarts)
    restarted: int = 0
    given_up: bool = False
    _process: asyncio.subprocess.Process | None = field(default=None, init=False)
    _stopping: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    @property
    def running(self) -> bool:
        """True while the process is there."""
        return self._process is not None and self._process.returncode is None

    @property
    def ready(self) -> bool:
        """True while the worker claims jobs."""
        return self.running and self.ready_file.exists()

    async def run(self) -> int:
        """Keep the worker running; return the exit code with which it drained or was given up."""
        backoff, failures = Backoff(self.restarts.first, self.restarts.longest), 0
        while True:
            free = await self._is_free()
            if self._stopping.is_set():
                self._close_lock()
                return 0
            seconds, code = await self._run_once()
            if self._stopping.is_set():
                return code
            log.error("a worker has ended", gpu=self.device.name, code=code)
            if seconds >= self.restarts.healthy:
                failures = 0
                backoff.reset()
            failures += 1
            if (code == BAD_CONFIGURATION and free) or failures >= self.restarts.most:
                self.given_up = True
                log.error("a GPU is left without a worker", gpu=self.device.name, failures=failures)
                return code
            if await self._is_stopped_within(backoff.next()):
                return 0
            self.restarted += 1

    def stop(self) -> None:
        """Let the worker drain and do not start it again; the second call lets it end at once."""
        self._stopping.set()
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """End a worker that is stuck; it is started again."""
        log.error("a stuck worker is being ended", gpu=self.device.name)
        self._send(signal.SIGKILL)

    async def _is_free(self) -> bool:
        """Wait for the GPU and the port; return False if `stop` came first, or `wait_seconds` have run out."""
        until, logged = asyncio.get_running_loop().time() + self.wait_seconds, ""
        while (reason := self._reason_to_wait()) is not None:
            if reason != logged:
                log.warning("a worker waits to start", gpu=self.device.name, reason=reason)
                logged = reason
            if asyncio.get_running_loop().time() >= until or await self._is_stopped_within(_LOOK_SECONDS):
                return False
        return True

    def _reason_to_wait(self) -> str | None:
        if self.lock is not None and not self.lock.take():
            return "a worker of another parent has its GPU"
        return None if self._port_is_free() else f"port {self.port} is taken"

    def _close_lock(self) -> None:
        if self.lock is not None:
            self.lock.close()

    def _port_is_free(self) -> bool:
        if self.port is None:
            return True
        try:
            socket.create_server((LOOPBACK, self.port)).close()
        except OSError:
            return False
        return True

    async def _run_once(self) -> tuple[float, int]:
        """Run the process to its end; return its seconds and its exit code."""
        now = asyncio.get_running_loop().time
        began = now()
        try:
            # in a session of its own, so that Ctrl-C reaches the parent alone, which passes it on once
            self._process = await asyncio.create_subprocess_exec(
                *self.command,
                env=dict(self.environment),
                stdin=asyncio.subprocess.DEVNULL,
                start_new_session=True,
                pass_fds=self.lock.descriptors if self.lock is not None else (),
            )
        finally:
            self._close_lock()  # the worker alone holds it from here on
        if self._stopping.is_set():
            self._send(signal.SIGTERM)
        code = await self._process.wait()
        self.ready_file.unlink(missing_ok=True)
        return now() - began, code

    async def _is_stopped_within(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                return await self._stopping.wait()
        return False

    def _send(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)
