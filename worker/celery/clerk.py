"""The process beside the worker that has Celery in it, as the worker sees it: lines of JSON both ways."""

import asyncio
import contextlib
import os
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import structlog

from worker.celery.note import Telling

__all__ = ["Clerk", "ClerkLost", "Desk"]

log = structlog.get_logger(__name__)

_PROGRAM: Final = (sys.executable, "-m", "worker.celery")
_LINE_BYTES: Final = 16 << 20
_END_SECONDS: Final = 5.0


class ClerkLost(Exception):
    """The process ended; another is started for the next call."""


class Desk(msgspec.Struct, frozen=True):
    """What the process is told first: `hostname` is the worker's name in Celery's remote control, `ttl` in seconds."""

    broker: str
    backend: str
    hostname: str
    ttl: int
    routes: dict[str, str] = {}


@dataclass(slots=True)
class _Process:
    process: asyncio.subprocess.Process
    reader: asyncio.Task[None]
    asked: dict[int, asyncio.Future[list[str]]] = field(default_factory=dict)


class Clerk:
    """Starts the process when it is first needed, and again when it has ended.

    `revoke` is called with the ids of tasks that somebody revoked; `look` answers the questions of remote control.
    """

    def __init__(
        self,
        desk: Desk,
        *,
        revoke: Callable[[list[str]], Awaitable[None]],
        look: Callable[[str], Any],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._desk = desk
        self._revoke = revoke
        self._look = look
        self._environment = dict(environment or {})
        self._process: _Process | None = None
        self._starting = asyncio.Lock()
        self._number = 0

    async def start(self) -> None:
        """Start the process unless it runs."""
        async with self._starting:
            if self._process is None or self._process.reader.done():
                self._process = await self._started()

    async def tell(self, words: Sequence[tuple[bytes, Telling]]) -> list[str]:
        """Let Celery go on from tasks, by their packed notes; return of each nothing, or why it cannot.

        Raises `ClerkLost`: then some of them may have been told.
        """
        await self.start()
        process = self._process
        assert process is not None, "it was started"
        self._number += 1
        number, answer = self._number, asyncio.get_running_loop().create_future()
        process.asked[number] = answer
        try:
            await _say(process, {"tell": number, "notes": [(telling, msgspec.Raw(note)) for note, telling in words]})
            return list(await answer)
        except OSError as error:
            raise ClerkLost(type(error).__name__) from error
        finally:
            process.asked.pop(number, None)

    async def close(self) -> None:
        """Let the process end, which it does when nobody speaks to it any more."""
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

    async def _started(self) -> _Process:
        process = await asyncio.create_subprocess_exec(
            *_PROGRAM,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, **self._environment},
            limit=_LINE_BYTES,
            start_new_session=True,  # Ctrl-C in a terminal is for the worker, which ends it in its own time
        )
        started: _Process
        asked: dict[int, asyncio.Future[list[str]]] = {}
        started = _Process(process, asyncio.create_task(self._listen(process, asked)), asked)
        with contextlib.suppress(OSError):
            await _say(started, self._desk)
        return started

    async def _listen(self, process: asyncio.subprocess.Process, asked: dict[int, asyncio.Future[list[str]]]) -> None:
        assert process.stdout is not None, "it is a pipe"
        try:
            while not process.stdout.at_eof():
                await self._hear_next(process.stdout, process, asked)
        finally:
            _give_up(asked, f"it ended with {process.returncode}")

    async def _hear_next(
        self,
        line: asyncio.StreamReader,
        process: asyncio.subprocess.Process,
        asked: dict[int, asyncio.Future[list[str]]],
    ) -> None:
        """Hear one word; whatever is wrong with it, the next is heard."""
        try:
            spoken = await line.readline()
            word = msgspec.json.decode(spoken) if spoken else {}
        except (ValueError, msgspec.DecodeError) as error:  # too long, or no JSON
            log.warning("a word of the process that has Celery cannot be read", error=type(error).__name__)
            _give_up(asked, "an answer of it may be lost")
            return
        try:
            await self._hear(word, process, asked)
        except Exception as error:  # one order that fails must not end remote control
            log.warning("an order of the process that has Celery failed", error=type(error).__name__)

    async def _hear(
        self, word: dict[str, Any], process: asyncio.subprocess.Process, asked: dict[int, asyncio.Future[list[str]]]
    ) -> None:
        match word:
            case {"told": number, "refused": refused}:
                answer = asked.get(number)
                if answer and not answer.done():
                    answer.set_result(refused)
            case {"revoke": ids}:
                await self._revoke(ids)
            case {"ask": number, "what": what}:
                with contextlib.suppress(OSError):
                    await _write(process, {"answer": number, "value": self._look(what)})


def _give_up(asked: Mapping[int, asyncio.Future[list[str]]], reason: str) -> None:
    for answer in asked.values():
        if not answer.done():
            answer.set_exception(ClerkLost(reason))


async def _say(process: _Process, word: object) -> None:
    await _write(process.process, word)


async def _write(process: asyncio.subprocess.Process, word: object) -> None:
    assert process.stdin is not None, "it is a pipe"
    process.stdin.write(msgspec.json.encode(word) + b"\n")
    await process.stdin.drain()
