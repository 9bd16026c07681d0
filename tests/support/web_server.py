"""A web server by TLS on this machine, and the ports that make a fetcher see it as a host of the public internet."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence

from httpcore2 import SOCKET_OPTION, AnyIOBackend, AsyncNetworkStream, ConnectError, ConnectTimeout

__all__ = ["Answer", "Web", "answer", "running_web"]

Answer = Callable[[bytes, asyncio.StreamWriter], Awaitable[None]]
"""Given the head of a request, writes the test's answer to the connection."""

PUBLIC = "93.184.215.14"


def answer(body: bytes = b"", status: str = "200 OK", **headers: str) -> Answer:
    """Answer with this, and a right length unless another is given."""
    fields = {"content_length": str(len(body)), **headers}
    head = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in fields.items())

    async def respond(request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(f"HTTP/1.1 {status}\r\n{head}\r\n".encode() + body)

    return respond


class Web(AnyIOBackend):
    """Names and their IP addresses, and the server's answer for each path; it keeps the requests.

    Every name that is not in `hosts` is at one public address. Every address is this server, except those of `refusing`
    and `silent`, which do not answer.
    """

    def __init__(self, trust: ssl.SSLContext) -> None:
        self.hosts: dict[str, Sequence[str] | OSError] = {}
        self.paths: Mapping[str, Answer] = {}
        self.asked: list[bytes] = []
        self.resolved: list[str] = []
        super().__init__()
        self.connected: list[str] = []
        self.was_asked, self.hung_up = asyncio.Event(), asyncio.Event()
        self.refusing: set[str] = set()
        self.silent: set[str] = set()
        self.port = 0
        self.trust = trust

    async def resolve(self, host: str) -> Sequence[str]:
        self.resolved.append(host)
        found = self.hosts.get(host, [PUBLIC])
        if isinstance(found, OSError):
            raise found
        return found

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[SOCKET_OPTION] | None = None,
    ) -> AsyncNetworkStream:
        self.connected.append(host)
        if host in self.refusing:
            raise ConnectError
        if host in self.silent:
            raise ConnectTimeout
        return await super().connect_tcp("127.0.0.1", self.port, timeout, local_address, socket_options)

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = await reader.readuntil(b"\r\n\r\n")
            self.asked.append(request)
            self.was_asked.set()
            respond = self.paths[request.split(b" ")[1].decode()]
            gone = asyncio.ensure_future(reader.read())
            responding = asyncio.ensure_future(respond(request, writer))
            await asyncio.wait([gone, responding], return_when=asyncio.FIRST_COMPLETED)
            if gone.done() or writer.is_closing():  # a response that fails on a lost connection may end first
                self.hung_up.set()
            gone.cancel()
            responding.cancel()
            await asyncio.gather(gone, responding, return_exceptions=True)
        except (OSError, asyncio.IncompleteReadError):
            self.hung_up.set()
        finally:
            writer.close()


@contextlib.asynccontextmanager
async def running_web(trust: ssl.SSLContext, context: ssl.SSLContext) -> AsyncIterator[Web]:
    """Run the server with this TLS context; `trust` is the context with which connections check it."""
    web = Web(trust)
    talks: set[asyncio.Task[None]] = set()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        talks.add(task)
        await web.talk(reader, writer)

    server = await asyncio.start_server(talk, "127.0.0.1", 0, ssl=context)
    web.port = server.sockets[0].getsockname()[1]
    try:
        yield web
    finally:
        server.close()
        for task in talks:
            task.cancel()
        await asyncio.gather(*talks, return_exceptions=True)
