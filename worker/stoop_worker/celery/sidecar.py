"""The worker's end of the sidecar, the process that imports Celery. The two exchange lines of JSON over pipes."""

import asyncio
import contextlib
import os
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import structlog

from stoop_worker.celery.ending import Redelivery

__all__ = ["Sidecar", "SidecarLost", "SidecarSettings"]

log = structlog.get_logger(__name__)

_PROGRAM: Final = (sys.executable, "-m", "stoop_worker.celery")
_LINE_BYTES: Final = 16 << 20
_END_SECONDS: Final = 5.0


class SidecarLost(Exception):
    """The sidecar ended; the next call starts another."""


class SidecarSettings(msgspec.Struct, frozen=True):
    """The first line to the sidecar. `hostname` is the worker's name in remote control; `ttl` is in seconds."""

    broker: str
    backend: str
    hostname: str
    ttl: int
    routes: dict[str, str] = {}


_Answers = dict[int, asyncio.Future[list[str]]]
"""The deliveries that wait for the sidecar's answer, by their number."""


@dataclass(slots=True)
class _Process:
    process: asyncio.subprocess.Process
    reader: asyncio.Task[None]
    answers: _Answers = field(default_factory=dict)


class Sidecar:
    """Starts the sidecar when it is first needed, and again after it has ended.

    `revoke` is called with the ids of revoked tasks. `inspect` answers the questions "active" and "stats" of remote
    control.
    """

    def __init__(
        self,
        settings: SidecarSettings,
        *,
        revoke: Callable[[list[str]], Awaitable[None]],
        inspect: Callable[[str], Any],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._settings = settings
        self._revoke = revoke
        self._inspect = inspect
        self._environment = dict(environment or {})
        self._process: _Process | None = None
        self._starting = asyncio.Lock()
        self._number = 0

    async def start(self) -> None:
        """Start the sidecar unless it runs."""
        async with self._starting:
            if self._process is None or self._process.reader.done():
                self._process = await self._spawn()

    async def deliver(self, endings: Sequence[tuple[bytes, Redelivery]]) -> list[str]:
        """Deliver packed endings to Celery; return the reason of each refusal, "" for every ending accepted.

        Raises `SidecarLost`; some endings may have been delivered all the same.
        """
        await self.start()
        process = self._process
        assert process is not None, "start has set it"
        self._number += 1
        number, answer = self._number, asyncio.get_running_loop().create_future()
        process.answers[number] = answer
        try:
            rows = [(redelivery, msgspec.Raw(packed)) for packed, redelivery in endings]
            await _send(process.process, {"deliver": number, "endings": rows})
            return list(await answer)
        except OSError as error:
            raise SidecarLost(type(error).__name__) from error
        finally:
            process.answers.pop(number, None)

    async def close(self) -> None:
        """Close the pipe, which ends the sidecar; kill it if it takes too long."""
        if self._process is None:
            return
        process = self._process.process
        if process.stdin:
            process.stdin.close()
        try:
            async with asyncio.timeout(_END_SECONDS):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
        self._process.reader.cancel()
        await asyncio.gather(self._process.reader, return_exceptions=True)

    async def _spawn(self) -> _Process:
        process = await asyncio.create_subprocess_exec(
            *_PROGRAM,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, **self._environment},
            limit=_LINE_BYTES,
            start_new_session=True,  # Ctrl-C in a terminal reaches the worker only, which then ends the sidecar itself
        )
        started: _Process
        answers: _Answers = {}
        started = _Process(process, asyncio.create_task(self._listen(process, answers)), answers)
        with contextlib.suppress(OSError):
            await _send(process, self._settings)
        return started

    async def _listen(self, process: asyncio.subprocess.Process, answers: _Answers) -> None:
        assert process.stdout is not None, "it is a pipe"
        try:
            while not process.stdout.at_eof():
                await self._read_next(process.stdout, process, answers)
        finally:
            _fail_all(answers, f"exit code {process.returncode}")

    async def _read_next(
        self,
        stream: asyncio.StreamReader,
        process: asyncio.subprocess.Process,
        answers: _Answers,
    ) -> None:
        """Read and handle one message; a bad one does not stop the reading."""
        try:
            line = await stream.readline()
            message = msgspec.json.decode(line) if line else {}
        except (ValueError, msgspec.DecodeError) as error:  # too long, or not JSON
            log.warning("a message of the Celery sidecar cannot be read", error=type(error).__name__)
            _fail_all(answers, "an answer may be lost")
            return
        try:
            await self._receive(message, process, answers)
        except Exception as error:  # one failed command must not end remote control
            log.warning("a command of the Celery sidecar failed", error=type(error).__name__)

    async def _receive(
        self,
        message: dict[str, Any],
        process: asyncio.subprocess.Process,
        answers: _Answers,
    ) -> None:
        match message:
            case {"delivered": number, "refusals": refusals}:
                answer = answers.get(number)
                if answer and not answer.done():
                    answer.set_result(refusals)
            case {"revoke": ids}:
                await self._revoke(ids)
            case {"ask": number, "question": question}:
                with contextlib.suppress(OSError):
                    await _send(process, {"answer": number, "value": self._inspect(question)})


def _fail_all(answers: _Answers, reason: str) -> None:
    for answer in answers.values():
        if not answer.done():
            answer.set_exception(SidecarLost(reason))


async def _send(process: asyncio.subprocess.Process, message: object) -> None:
    assert process.stdin is not None, "it is a pipe"
    process.stdin.write(msgspec.json.encode(message) + b"\n")
    await process.stdin.drain()
