"""One engine child from the front's side: start it, send it requests, read its reports, end it."""

import asyncio
import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from queue import SimpleQueue
from typing import Final

from stoop_worker.engine.request import Request
from stoop_worker.engine_process.frames import receive_soon, send
from stoop_worker.engine_process.pixels import Trays, laid_out
from stoop_worker.engine_process.protocol import Abort, EngineSettings, NotReady, Ready, Report, Submit
from stoop_worker.errors import EngineFault

__all__ = ["ENGINE_PROGRAM", "Child"]

ENGINE_PROGRAM: Final = (sys.executable, "-m", "stoop_worker.engine_process")
"""The command line of a child, except for the numbers that `Child.start` adds."""

_END_SECONDS = 10.0


@dataclass(slots=True)
class Child:
    """A running child. On Linux it dies with the thread that started it, so start it in the main thread."""

    process: asyncio.subprocess.Process
    _line: socket.socket
    _reader: asyncio.StreamReader
    _pipe: asyncio.ReadTransport
    _trays: Trays
    _outbox: "SimpleQueue[object]"  # emptied by its own thread, so that a slow child does not block the loop

    @classmethod
    async def start(cls, program: Sequence[str], settings: EngineSettings, trays: Trays) -> "Child":
        """Start a child, and send it the engine's settings and the trays."""
        ours, theirs = socket.socketpair()
        up, into = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *program,
                *map(str, (os.getpid(), theirs.fileno(), into)),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), into),
                env={name: value for name, value in os.environ.items() if not name.startswith(("STOOP_", "AWS_"))},
                start_new_session=True,  # Ctrl-C in a terminal must reach only the front, which still needs the engine
            )
        finally:
            theirs.close()
            os.close(into)
        reader = asyncio.StreamReader()
        pipe, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(up, "rb", buffering=0)
        )
        child = cls(process, ours, reader, pipe, trays, SimpleQueue())
        child._outbox.put(settings)
        threading.Thread(target=child._tell, name="engine line", daemon=True).start()
        return child

    async def ready(self) -> Ready:
        """Wait for the engine's first answer; raises `ConfigError`, `CheckpointError`, or `EngineFault` if it ended."""
        try:
            word = await receive_soon(self._reader)
        except EOFError:
            raise EngineFault(f"the engine ended before it was ready ({await self.end()})") from None
        if isinstance(word, NotReady):
            raise word.as_error()
        assert isinstance(word, Ready), "a child says first whether it is ready"
        return word

    async def reports(self) -> AsyncIterator[Report]:
        """Yield the child's reports until it has ended."""
        with contextlib.suppress(EOFError):
            while True:
                yield await receive_soon(self._reader)

    def submit(self, request: Request) -> None:
        """Hand a request over; the caller keeps its pixels that lie in trays until its last output."""
        self._outbox.put(request)

    def abort(self, request_id: str) -> None:
        """End a request within one step."""
        self._outbox.put(Abort(request_id))

    def stop(self) -> None:
        """Let the child end after its current step."""
        self._outbox.put(None)

    def kill(self) -> None:
        """End the child now."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()

    async def end(self, grace: float = _END_SECONDS) -> str:
        """Wait for the end of a child that was stopped or killed or has closed its pipe; return how it ended.

        After `grace` seconds it kills the child. It raises `EngineFault` if even that fails, for example because a
        device's driver hangs.
        """
        try:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.process.wait(), grace)
                return _say(self.process.returncode)
            self.kill()
            await asyncio.wait_for(self.process.wait(), _END_SECONDS)
            return _say(self.process.returncode)
        except TimeoutError:
            raise EngineFault("the engine's process cannot be ended: its device may hang") from None
        finally:
            self.stop()
            self._pipe.close()

    def _tell(self) -> None:
        """Send the outbox's messages, until the outbox or the child ends."""
        with self._line, contextlib.suppress(OSError):
            while (value := self._outbox.get()) is not None:
                match value:
                    case Request():
                        self._tell_request(value)
                    case EngineSettings():
                        send(self._line, value, self._trays.file)
                    case _:
                        send(self._line, value)

    def _tell_request(self, request: Request) -> None:
        media, request = request.media, replace(request, media=())
        with laid_out(media, self._trays) as (layouts, file):
            send(self._line, Submit(request, layouts), file)


def _say(code: int | None) -> str:
    if code is not None and code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return f"exit code {code}"
