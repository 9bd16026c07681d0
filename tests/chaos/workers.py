"""Worker processes that a test may kill, stop and restart."""

import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

__all__ = ["WorkerProcess"]

_PROGRAM = "tests.support.scripted_worker"
_READY_SECONDS = 60.0
_END_SECONDS = 20.0


class WorkerProcess:
    """One real worker with a scripted engine; its settings are in the environment."""

    def __init__(self, folder: Path, name: str, environment: Mapping[str, str]) -> None:
        self.name = name
        self._folder = folder
        self._environment = dict(environment)
        self._starts = 0
        self._ready = folder / "no start yet"
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None, "start it first"
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        assert self._process is not None, "start it first"
        return self._process.returncode

    @property
    def log(self) -> Path:
        return self._folder / f"{self.name}.log"

    @property
    def children(self) -> list[int]:
        """The processes it has started, its engine's among them."""
        tasks = Path(f"/proc/{self.pid}/task")
        listed = [(task / "children").read_text().split() for task in tasks.iterdir()]
        return [int(pid) for pids in listed for pid in pids]

    async def start(self) -> None:
        """Start it, and return when it claims jobs."""
        self._starts += 1
        self._ready = self._folder / f"{self.name}-{self._starts}.ready"
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", _PROGRAM),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**self._environment, "STOOP_READY_FILE": str(self._ready)},
            )
        await self._until(ready=True)

    @property
    def is_ready(self) -> bool:
        return self._ready.exists()

    async def until_ready(self) -> None:
        """Wait until it claims jobs again."""
        await self._until(ready=True)

    async def until_draining(self) -> None:
        """Wait until it claims nothing new."""
        await self._until(ready=False)

    async def _until(self, *, ready: bool) -> None:
        async with asyncio.timeout(_READY_SECONDS):
            while self._ready.exists() != ready:
                if self.returncode is not None:
                    raise RuntimeError(f"{self.name} ended with {self.returncode}: {self.last_words()}")
                await asyncio.sleep(0.02)

    def send(self, signum: signal.Signals, *, engine: bool = False) -> None:
        """Send a signal to the front, with `engine` to the engine's process first."""
        for pid in self.children if engine else ():
            os.kill(pid, signum)
        os.kill(self.pid, signum)

    def kill_engine(self) -> None:
        """End the engine's process at once, and leave the front."""
        for pid in self.children:
            os.kill(pid, signal.SIGKILL)

    async def kill(self) -> None:
        """End it at once, as a crash would, and wait for that."""
        await self.end(signal.SIGKILL)

    async def end(self, signum: signal.Signals) -> int:
        """Send a signal and return the exit code."""
        assert self._process is not None, "start it first"
        if self._process.returncode is None:
            self._process.send_signal(signum)
        async with asyncio.timeout(_END_SECONDS + float(self._environment.get("STOOP_DRAIN_SECONDS", "30"))):
            return await self._process.wait()

    async def wait(self) -> int:
        assert self._process is not None, "start it first"
        return await self._process.wait()

    def last_words(self) -> str:
        return self.log.read_text(errors="replace")[-1500:]
