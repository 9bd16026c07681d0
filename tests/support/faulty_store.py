"""An object store over HTTP whose faults a test sets."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from random import Random

__all__ = ["FaultyStore", "faulty_store"]

_ERROR = '<?xml version="1.0"?><Error><Code>{code}</Code><Message>as set</Message></Error>'


@dataclass(slots=True, eq=False)
class FaultyStore:
    """Serves objects by their path; of all GETs the share `failing` gets a 500, the share `slow` waits first.

    `answered` counts answers by status code, and slow ones under `slow`.
    """

    objects: Mapping[str, bytes]
    chance: Random
    failing: float = 0.0
    slow: float = 0.0
    slow_seconds: float = 1.0
    port: int = 0
    answered: Counter[str] = field(default_factory=Counter)
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection's requests until it ends."""
        self._writers.add(writer)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                await self._respond(head.split(b" ")[1].decode().partition("?")[0], writer)
        self._writers.discard(writer)
        writer.transport.abort()

    async def hang_up(self) -> None:
        """Close every connection."""
        writers = list(self._writers)
        for writer in writers:
            writer.transport.abort()
        await asyncio.gather(*(writer.wait_closed() for writer in writers), return_exceptions=True)

    async def _respond(self, path: str, writer: asyncio.StreamWriter) -> None:
        if self.chance.random() < self.slow:
            self.answered["slow"] += 1
            await asyncio.sleep(self.slow_seconds)
        found = self.objects.get(path)
        if self.chance.random() < self.failing:
            status, kind, body = "500 Internal Server Error", "application/xml", _ERROR.format(code="InternalError")
        elif found is None:
            status, kind, body = "404 Not Found", "application/xml", _ERROR.format(code="NoSuchKey")
        else:
            status, kind, body = "200 OK", "image/png", ""
        content = found if found is not None and status.startswith("200") else body.encode()
        self.answered[status[:3]] += 1
        head = f'HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(content)}\r\nETag: "0"\r\n\r\n'
        writer.write(head.encode() + content)
        await writer.drain()


@contextlib.asynccontextmanager
async def faulty_store(store: FaultyStore) -> AsyncIterator[FaultyStore]:
    """Serve a store on a free port of the loopback interface."""
    server = await asyncio.start_server(store.answer, "127.0.0.1", 0)
    store.port = server.sockets[0].getsockname()[1]
    try:
        yield store
    finally:
        server.close()
        await store.hang_up()
