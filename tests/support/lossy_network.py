"""A network between a client and a server that loses bytes on demand."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

__all__ = ["LossyNetwork", "lossy_network"]


@dataclass(slots=True, eq=False)
class LossyNetwork:
    """Listens at `port` and passes everything on to a server, until a test changes it.

    `losses` counts the connections that were cut in order to lose their reply. `delay` is how long every piece
    that is passed on takes, in seconds. While it is `down` nobody gets through.
    """

    host: str
    server_port: int
    port: int = 0
    losing: bytes | None = None
    losses: int = 0
    delay: float = 0.0
    down: bool = False
    connected: asyncio.Event = field(default_factory=asyncio.Event)
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)

    def lose_reply_to(self, command: bytes) -> None:
        """Let the next request that contains `command` through, and cut its connection instead of the reply."""
        self.losing = command

    def cut(self) -> None:
        """Cut every open connection; new ones are accepted."""
        self.connected.clear()
        for writer in list(self._writers):
            writer.transport.abort()

    async def join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass one connection on until either side ends it."""
        if self.down:
            writer.transport.abort()
            return
        try:
            upstream_reader, upstream = await asyncio.open_connection(self.host, self.server_port)
        except OSError:
            writer.transport.abort()
            return
        both = {writer, upstream}
        self._writers |= both
        self.connected.set()
        lost = asyncio.Event()
        with contextlib.suppress(OSError):
            await asyncio.gather(self._requests(reader, upstream, lost), self._replies(upstream_reader, writer, lost))
        self._writers -= both
        for one in both:
            one.transport.abort()

    async def _requests(self, reader: asyncio.StreamReader, server: asyncio.StreamWriter, lost: asyncio.Event) -> None:
        while read := await reader.read(1 << 16):
            if self.losing and self.losing in read:
                self.losing = None
                lost.set()
            await self._travel()
            server.write(read)
        server.transport.abort()

    async def _replies(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, lost: asyncio.Event) -> None:
        while read := await reader.read(1 << 16):
            if lost.is_set():
                self.losses += 1
                break
            await self._travel()
            writer.write(read)
        writer.transport.abort()

    async def _travel(self) -> None:
        if self.delay:
            await asyncio.sleep(self.delay)


@contextlib.asynccontextmanager
async def lossy_network(host: str, server_port: int) -> AsyncIterator[LossyNetwork]:
    """Run a network to a server."""
    network = LossyNetwork(host, server_port)
    server = await asyncio.start_server(network.join, "127.0.0.1", 0)
    network.port = server.sockets[0].getsockname()[1]
    try:
        yield network
    finally:
        network.cut()
        server.close()
        await server.wait_closed()
