"""One engine child from the front's side: start it, send it requests, read its reports, end it."""

import asyncio
import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from queue import SimpleQueue
from typing import Final

from stoop_worker.engine.request import Request
from stoop_worker.engine_process.frames import receive_async, send, send_now
from stoop_worker.engine_process.pixels import SharedPixels, as_memfd, layouts_of
from stoop_worker.engine_process.protocol import Abort, EngineSettings, Loading, NotReady, Ready, Report, Submit
from stoop_worker.errors import EngineFault

__all__ = ["ENGINE_PROGRAM", "Child"]

ENGINE_PROGRAM: Final = (sys.executable, "-m", "stoop_worker.engine_process")
"""The command line of a child, except for the numbers that `Child.start` adds."""

_END_SECONDS = 10.0


@dataclass(slots=True)
class Child:
    """A running child. On Linux it dies with the thread that started it, so start it in the main thread."""

    process: asyncio.subprocess.Process
    _socket: socket.socket
    _reader: asyncio.StreamReader
    _pipe: asyncio.ReadTransport
    _shared_pixels: SharedPixels
    # what cannot be sent at once goes through its own thread, so that a slow child does not block the loop
    _outbox: "SimpleQueue[object]"
    _put: int = 0  # written by the event loop
    _taken: int = 0  # written by the thread

    @classmethod
    async def start(cls, program: Sequence[str], settings: EngineSettings, shared_pixels: SharedPixels) -> "Child":
        """Start a child, and send it the engine's settings and the memory for pixels."""
        ours, theirs = socket.socketpair()
        receiving, sending = os.pipe()
        reader = asyncio.StreamReader()
        with contextlib.ExitStack() as unless_started:
            unless_started.enter_context(ours)
            reports = unless_started.enter_context(os.fdopen(receiving, "rb", buffering=0))
            try:
                process = await asyncio.create_subprocess_exec(
                    *program,
                    *map(str, (os.getpid(), theirs.fileno(), sending)),
                    stdin=asyncio.subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(), sending),
                    env={name: value for name, value in os.environ.items() if not name.startswith(("STOOP_", "AWS_"))},
                    # Ctrl-C in a terminal must reach only the front, which still needs the engine
                    start_new_session=True,
                )
            finally:
                theirs.close()
                os.close(sending)
            pipe, _ = await asyncio.get_running_loop().connect_read_pipe(
                lambda: asyncio.StreamReaderProtocol(reader), reports
            )
            unless_started.pop_all()
        child = cls(process, ours, reader, pipe, shared_pixels, SimpleQueue())
        child._put_out(settings)
        threading.Thread(target=child._send_outbox, name="engine outbox", daemon=True).start()
        return child

    async def ready(self, on_loading: Callable[[Loading], None]) -> Ready:
        """Wait for the engine's first answer; raises `ConfigError`, `CheckpointError`, or `EngineFault` if it ended.

        `on_loading` is called with the progress of reading the weights.
        """
        try:
            while isinstance(reply := await receive_async(self._reader), Loading):
                on_loading(reply)
        except EOFError:
            raise EngineFault(f"the engine ended before it was ready ({await self.end()})") from None
        if isinstance(reply, NotReady):
            raise reply.as_error()
        assert isinstance(reply, Ready), "a child that has loaded is Ready or NotReady"
        return reply

    async def reports(self) -> AsyncIterator[Report]:
        """Yield the child's reports until it has ended."""
        with contextlib.suppress(EOFError):
            while True:
                yield await receive_async(self._reader)

    def submit(self, request: Request) -> None:
        """Hand a request over; the caller keeps its pixels in the shared file until its last output."""
        layouts = layouts_of(request.media, self._shared_pixels)
        if layouts is None:
            self._put_out(request)
        else:
            self._send_or_put_out(Submit(replace(request, media=()), layouts))

    def abort(self, request_id: str) -> None:
        """End a request within one step."""
        self._send_or_put_out(Abort(request_id))

    def stop(self) -> None:
        """Let the child end after its current step."""
        self._put_out(None)

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
                return _describe_exit(self.process.returncode)
            self.kill()
            await asyncio.wait_for(self.process.wait(), _END_SECONDS)
            return _describe_exit(self.process.returncode)
        except TimeoutError:
            raise EngineFault("the engine's process cannot be ended: its device may hang") from None
        finally:
            self.stop()
            self._pipe.close()

    def _send_or_put_out(self, message: Submit | Abort) -> None:
        """Send a message at once if nothing waits before it, because waking a thread takes longer than sending."""
        if self._put != self._taken:
            self._put_out(message)
            return
        with contextlib.suppress(OSError):  # the child has ended, and its reports say so
            if rest := send_now(self._socket, message):
                self._put_out(rest)

    def _put_out(self, value: object) -> None:
        self._put += 1
        self._outbox.put(value)

    def _send_outbox(self) -> None:
        """Send the outbox's messages, until the outbox or the child ends."""
        with self._socket, contextlib.suppress(OSError):
            while (value := self._outbox.get()) is not None:
                self._send(value)
                del value  # while this thread waits, it must not hold a request's pixels
                self._taken += 1

    def _send(self, value: object) -> None:
        match value:
            case Request():
                self._send_request(value)
            case bytes():
                self._socket.sendall(value)
            case EngineSettings():
                send(self._socket, value, self._shared_pixels.file)
            case _:
                send(self._socket, value)

    def _send_request(self, request: Request) -> None:
        media, request = request.media, replace(request, media=())
        with as_memfd(media, self._shared_pixels) as (layouts, file):
            send(self._socket, Submit(request, layouts), file)


def _describe_exit(code: int | None) -> str:
    if code is not None and code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return f"exit code {code}"
