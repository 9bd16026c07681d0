"""GETs by HTTP/1.1 with a quarter of the work of a client library, for a caller that can read any answer another way.

An answer that is not of the usual form raises `OSError`: it must have a length, and no transfer encoding.
"""

import asyncio
import ssl
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

__all__ = ["Answer", "HttpConnections", "Origin"]

_BUFFER_BYTES: Final = 256 << 10  # holds most photos, so that they are copied once
_IDLE_SECONDS: Final = 15.0  # servers and routers forget connections that are idle for longer
_HEAD_END: Final = b"\r\n\r\n"
_VERSIONS: Final = (b"HTTP/1.1", b"HTTP/1.0")
_LENGTH: Final = b"content-length"
_DIGITS: Final = 18  # of a length


class Origin(NamedTuple):
    """The address of a server."""

    host: str
    port: int
    tls: bool


class Answer(NamedTuple):
    """An answer to a GET. The names of `headers` are in lower case; `body` is None if it was not read."""

    status: int
    headers: Mapping[bytes, bytes]
    body: bytes | None


class HttpConnections:
    """Connections to servers, kept for further GETs, at most `most_idle` of them; they belong to one event loop.

    `trust` returns what certificates are checked by. Times are in seconds; `read_timeout` is the longest pause.
    """

    def __init__(
        self, trust: Callable[[], ssl.SSLContext], *, most_idle: int, connect_timeout: float, read_timeout: float
    ) -> None:
        self._trust = trust
        self._most_idle = most_idle
        self._connect_timeout = connect_timeout
        self._read_timeout = read_timeout
        self._idle: list[_Connection] = []  # the last used at the end
        self._open: set[_Connection] = set()

    async def get(self, origin: Origin, head: bytes, most_bytes: int) -> Answer:
        """Send a request, `head`, and return its answer; raises OSError.

        The body is read if the status is 200 and the body has at most `most_bytes`.
        """
        kept = self._take_idle(origin)
        if kept is not None:
            try:
                return await self._ask(kept, head, most_bytes)
            except _Stale:
                pass  # the server had closed the connection before it saw the request
        return await self._ask(await self._connect(origin), head, most_bytes)

    async def close(self) -> None:
        """Close the connections, and end the GETs on them; idempotent."""
        for connection in self._open:
            connection.close()
        self._idle.clear()
        await asyncio.sleep(0)  # transports close in the next turn of the loop

    async def _ask(self, connection: "_Connection", head: bytes, most_bytes: int) -> Answer:
        answer = await connection.get(head, most_bytes)
        if connection.reusable:
            connection.idle_since = connection.loop.time()
            self._idle.append(connection)
            if len(self._idle) > self._most_idle:
                self._idle.pop(0).close()
        return answer

    def _take_idle(self, origin: Origin) -> "_Connection | None":
        if not self._idle:
            return None
        oldest = self._idle[0].loop.time() - _IDLE_SECONDS
        while self._idle and self._idle[0].idle_since < oldest:
            self._idle.pop(0).close()
        for place in range(len(self._idle) - 1, -1, -1):
            if self._idle[place].origin == origin:
                return self._idle.pop(place)
        return None

    async def _connect(self, origin: Origin) -> "_Connection":
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(self._connect_timeout):
            _, connection = await loop.create_connection(
                lambda: _Connection(loop, origin, self._read_timeout, self._forget),
                origin.host,
                origin.port,
                ssl=self._trust() if origin.tls else None,
                happy_eyeballs_delay=0.25,
            )
        self._open.add(connection)
        return connection

    def _forget(self, connection: "_Connection") -> None:
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)


class _Stale(ConnectionError):
    """A kept connection ended before any byte of the answer."""


class _Unusual(OSError):
    """The answer must be read by another client."""


class _Connection(asyncio.BufferedProtocol):
    """One connection, and at most one GET on it at a time; after the GET it is `reusable`, or else closed.

    The buffer holds the head, and then as much of the body as fits; `_pieces` are what came before.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        origin: Origin,
        read_timeout: float,
        on_lost: Callable[["_Connection"], None],
    ) -> None:
        self.loop = loop
        self.origin = origin
        self.reusable = False
        self.idle_since = 0.0
        self._read_timeout = read_timeout
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[Answer] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._was_used = False
        self._bytes = bytearray(_BUFFER_BYTES)
        self._view = memoryview(self._bytes)
        self._begin(0)

    def _begin(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._heard = self.loop.time()
        self._filled = 0
        self._head: _Head | None = None
        self._body_at = 0
        self._left = 0  # of the body, from `_body_at` on
        self._pieces: list[bytes] = []

    async def get(self, head: bytes, most_bytes: int) -> Answer:
        """Send a request and return its answer; raises OSError, `_Stale` if the server had closed the connection."""
        if self._transport is None or self._transport.is_closing():
            raise _Stale
        self._begin(most_bytes)
        self.reusable = False
        self._waiter = self.loop.create_future()
        self._timer = self.loop.call_later(self._read_timeout, self._check_pause)
        try:
            self._transport.write(head)
            return await self._waiter
        finally:
            self._timer.cancel()
            self._waiter, self._was_used = None, True
            if not self.reusable:
                self.close()

    def close(self) -> None:
        """Drop the connection, which ends its GET; idempotent."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note the transport."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        """End the GET."""
        self._transport = None
        self._on_lost(self)
        unheard = self._was_used and self._head is None and not self._filled
        self._fail(_Stale() if unheard else error or ConnectionError("the server closed the connection"))

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the free part of the buffer."""
        return self._view[self._filled :]

    def buffer_updated(self, count: int) -> None:
        """Read on."""
        if self._waiter is None or self._waiter.done():
            self.close()  # nobody asked
            return
        self._filled += count
        self._heard = self.loop.time()
        try:
            if self._head is not None or self._read_head():
                self._read_body()
        except OSError as error:
            self._fail(error)

    def _read_head(self) -> bool:
        end = self._bytes.find(_HEAD_END, 0, self._filled)
        if end < 0:
            if self._filled == _BUFFER_BYTES:
                raise _Unusual("the head is too long")
            return False
        self._head = _Head.read(bytes(self._view[:end]))
        self._body_at = end + len(_HEAD_END)
        length = self._head.length
        if length is None or length > self._most_bytes:
            self._answer(None)
            return False
        self._left = length
        return True

    def _read_body(self) -> None:
        assert self._head is not None
        end = self._body_at + self._left
        if end <= self._filled:
            self._pieces.append(bytes(self._view[self._body_at : end]))
            self.reusable = self._head.persists and end == self._filled
            self._answer(self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces))
        elif self._filled == _BUFFER_BYTES:
            self._pieces.append(bytes(self._view[self._body_at :]))
            self._left -= len(self._pieces[-1])
            self._body_at = self._filled = 0

    def _answer(self, body: bytes | None) -> None:
        if self._waiter is not None and self._head is not None:
            self._waiter.set_result(Answer(self._head.status, self._head.headers, body))

    def _fail(self, error: Exception) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error)

    def _check_pause(self) -> None:
        due = self._heard + self._read_timeout
        if self.loop.time() < due:
            self._timer = self.loop.call_at(due, self._check_pause)
        else:
            self._fail(TimeoutError("the server paused for too long"))


class _Head(NamedTuple):
    """The head of an answer; `length` is that of a body that can be read, and after it the connection `persists`."""

    status: int
    headers: Mapping[bytes, bytes]
    length: int | None
    persists: bool

    @classmethod
    def read(cls, head: bytes) -> "_Head":
        """Read the bytes before the empty line."""
        first, *lines = head.split(b"\r\n")
        version, _, rest = first.partition(b" ")
        if version not in _VERSIONS or not rest[:3].isdigit() or rest.startswith(b"1"):
            raise _Unusual("this is not the answer of HTTP/1 to a GET")
        headers: dict[bytes, bytes] = {}
        for line in lines:
            name, colon, value = line.partition(b":")
            if not colon or not name or name != name.strip():
                raise _Unusual("a header cannot be read")
            name = name.lower()
            if name == _LENGTH and name in headers:
                raise _Unusual("the answer has two lengths")
            headers[name] = value.strip()
        status, given = int(rest[:3]), headers.get(_LENGTH, b"")
        plain = status == 200 and b"transfer-encoding" not in headers and given.isdigit() and len(given) <= _DIGITS
        persists = version == b"HTTP/1.1" and b"close" not in headers.get(b"connection", b"").lower()
        return cls(status, headers, int(given) if plain else None, persists)
