"""One command, one connection, one reply: also after time-outs, cancellations and closed connections."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError

from stoop_worker.jobs.redis.connect import connect, read_url
from stoop_worker.jobs.redis.connections import Connections

SECONDS = 10.0


class SlowServer:
    """Answers each command with its name; it answers those in `slow` when the test sets `released`."""

    def __init__(self) -> None:
        self.port = 0
        self.accepted = 0
        self.slow = {b"SLOW"}
        self.asked = asyncio.Event()
        self.released = asyncio.Event()
        self.answered = asyncio.Event()
        self.writers: list[asyncio.StreamWriter] = []
        self.serving: list[asyncio.Task[None] | None] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        self.writers.append(writer)
        self.serving.append(asyncio.current_task())
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, ValueError):
            while words := await _command(reader):
                if words[0] in self.slow:
                    self.asked.set()
                    await self.released.wait()
                writer.write(b"+%s\r\n" % words[0])
                await writer.drain()
                if words[0] in self.slow:
                    self.answered.set()
        writer.close()


async def _command(reader: asyncio.StreamReader) -> list[bytes]:
    """Read an array of strings."""
    count = int((await reader.readuntil(b"\r\n"))[1:])
    words = []
    for _ in range(count):
        size = int((await reader.readuntil(b"\r\n"))[1:])
        words.append((await reader.readexactly(size + 2))[:-2])
    return words


@pytest.fixture
async def server() -> AsyncIterator[SlowServer]:
    slow = SlowServer()
    async with await asyncio.start_server(slow.serve, "127.0.0.1", 0) as listening:
        slow.port = listening.sockets[0].getsockname()[1]
        yield slow
        slow.released.set()
        for writer, serving in zip(slow.writers, slow.serving, strict=True):
            writer.transport.abort()
            if serving:
                await serving
            with contextlib.suppress(OSError):
                await writer.wait_closed()


@contextlib.asynccontextmanager
async def connected(url: str, timeout: float = SECONDS) -> AsyncIterator[Connections]:
    client = connect(read_url(url), timeout=timeout)
    assert isinstance(client, Redis)
    connections = Connections(client, timeout=timeout)
    async with asyncio.timeout(3 * SECONDS):
        yield connections
    await connections.disconnect()
    await client.aclose()


def slow_url(server: SlowServer) -> str:
    return f"redis://127.0.0.1:{server.port}/0"


async def has_arrived(connections: Connections) -> None:
    """Return when the only connection, which is idle, has bytes to read or was closed by the server."""
    (idle,) = connections._idle
    while not await idle.can_read():
        await asyncio.sleep(0)


async def test_a_command_without_an_answer_times_out(server: SlowServer) -> None:
    async with connected(slow_url(server), timeout=0.2) as connections:
        with pytest.raises(TimeoutError, match=r"no answer in 0\.2 s"):
            await connections.execute("SLOW")
    assert server.asked.is_set()


async def test_the_time_to_connect_counts_too(server: SlowServer) -> None:
    server.slow = {b"SELECT"}  # the first command of a connection to database 1
    async with connected(f"redis://127.0.0.1:{server.port}/1", timeout=0.2) as connections:
        with pytest.raises(TimeoutError):
            await connections.execute("PING")
    assert server.asked.is_set()


@pytest.mark.parametrize("arrives", ["before the next command", "after the next command was sent"])
@pytest.mark.parametrize("ends", ["timeout", "cancellation"])
async def test_a_late_reply_never_answers_the_next_command(server: SlowServer, ends: str, arrives: str) -> None:
    async with connected(slow_url(server), timeout=0.2 if ends == "timeout" else SECONDS) as connections:
        slow = asyncio.create_task(connections.execute("SLOW"))
        await server.asked.wait()
        if ends == "cancellation":
            slow.cancel()
        with pytest.raises((TimeoutError, asyncio.CancelledError)):
            await slow
        if arrives == "before the next command":
            server.released.set()
            await server.answered.wait()
        following = asyncio.create_task(connections.execute("NEXT"))
        await asyncio.sleep(0)
        server.released.set()
        assert await following == b"NEXT"
        assert await connections.execute("LAST") == b"LAST"


async def test_a_reply_that_nobody_asked_for_is_not_read_as_an_answer(server: SlowServer) -> None:
    async with connected(slow_url(server)) as connections:
        assert await connections.execute("FIRST") == b"FIRST"
        server.writers[-1].write(b"+UNASKED\r\n")
        await has_arrived(connections)
        assert await connections.execute("NEXT") == b"NEXT"
    assert server.accepted == 2


async def test_a_connection_that_the_server_closes_under_a_command_is_an_error_and_the_next_command_works(
    server: SlowServer,
) -> None:
    async with connected(slow_url(server)) as connections:
        slow = asyncio.create_task(connections.execute("SLOW"))
        await server.asked.wait()
        server.writers[-1].transport.abort()
        with pytest.raises((OSError, RedisConnectionError)):
            await slow
        assert await connections.execute("NEXT") == b"NEXT"


async def test_an_idle_connection_that_the_server_has_closed_is_replaced_unseen(redis_url: str) -> None:
    async with connected(redis_url) as connections, connected(redis_url) as other:
        first = await connections.execute("CLIENT", "ID")
        await other.execute("CLIENT", "KILL", "ID", first)
        await has_arrived(connections)
        assert await connections.execute("CLIENT", "ID") != first


async def test_a_connection_serves_one_command_after_the_other(redis_url: str) -> None:
    async with connected(redis_url) as connections:
        first = await connections.execute("CLIENT", "ID")
        with pytest.raises(ResponseError):
            await connections.execute("GET")
        assert await connections.execute("CLIENT", "ID") == first


async def test_a_command_does_not_wait_for_one_that_blocks(redis_url: str) -> None:
    async with connected(redis_url) as connections:
        blocked = asyncio.create_task(connections.execute("XREAD", "BLOCK", 0, "STREAMS", "news", "0"))
        await connections.execute("PING")
        await connections.execute("XADD", "news", "1-1", "field", b"value")
        assert await blocked == [[b"news", [(b"1-1", {b"field": b"value"})]]]


async def test_disconnecting_ends_a_command_that_blocks_and_the_next_one_connects_anew(redis_url: str) -> None:
    async with connected(redis_url) as connections, connected(redis_url) as other:
        blocked = asyncio.create_task(connections.execute("BLPOP", "news", 0))
        await until_blocked(other)
        await connections.disconnect()
        with pytest.raises((OSError, RedisConnectionError)):
            await blocked
        assert await connections.execute("PING")


async def until_blocked(connections: Connections) -> None:
    """Return when Redis has a client that blocks."""
    while True:
        info: dict[str, Any] = await connections.execute("INFO", "clients")
        if info["blocked_clients"]:
            return
