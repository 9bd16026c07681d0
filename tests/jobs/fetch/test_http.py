"""GETs on connections of our own: bodies of any size, kept connections, and answers that another client must read."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from stoop_worker.jobs.fetch.http import HttpConnections, Origin

HOST = "127.0.0.1"
REQUEST = b"GET /key HTTP/1.1\r\nHost: store\r\n\r\n"
USUAL = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nimage"
MOST = 16 << 20

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.mark.parametrize("size", [0, 1, 262_144, 262_145, 3_000_001])
async def test_bodies_of_any_size_arrive_whole(size: int) -> None:
    body = (bytes(range(251)) * (size // 251 + 1))[:size]
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (size, body)
    async with server(answering(answer)) as origin, connections() as http:
        for _ in range(2):
            found = await http.get(origin, REQUEST, MOST)
            assert found.status == 200
            assert found.body == body


async def test_an_answer_may_come_byte_by_byte() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for byte in USUAL:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0)

    async with server(talk) as origin, connections() as http:
        assert (await http.get(origin, REQUEST, MOST)).body == b"image"


async def test_gets_one_after_another_share_a_connection_and_those_at_once_do_not() -> None:
    seen: list[int] = []
    both_asked = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(0)
        mine = len(seen) - 1
        while await reader.readuntil(b"\r\n\r\n"):
            seen[mine] += 1
            if len(seen) == 2:
                both_asked.set()
            if sum(seen) > 2:
                await both_asked.wait()
            writer.write(USUAL)

    async with server(talk) as origin, connections() as http:
        for _ in range(2):
            await http.get(origin, REQUEST, MOST)
        assert seen == [2]
        async with asyncio.timeout(10):
            await asyncio.gather(*(http.get(origin, REQUEST, MOST) for _ in range(2)))
        assert seen == [3, 1]


async def test_a_get_on_a_connection_that_the_server_has_closed_is_sent_again() -> None:
    heads = 0

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal heads
        await reader.readuntil(b"\r\n\r\n")
        heads += 1
        writer.write(USUAL)
        await reader.readuntil(b"\r\n\r\n")  # and closes without an answer, as a server does that was idle for too long

    async with server(talk) as origin, connections() as http:
        for _ in range(3):
            assert (await http.get(origin, REQUEST, MOST)).body == b"image"
    assert heads == 3


@pytest.mark.parametrize("connection", ["close", "Keep-Alive, Close"])
async def test_no_connection_is_kept_that_the_server_will_close(connection: str) -> None:
    count = 0

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal count
        count += 1
        while await reader.readuntil(b"\r\n\r\n"):
            writer.write(USUAL.replace(b"\r\n\r\n", b"\r\nConnection: %b\r\n\r\n" % connection.encode()))

    async with server(talk) as origin, connections() as http:
        for _ in range(2):
            assert (await http.get(origin, REQUEST, MOST)).body == b"image"
    assert count == 2


@pytest.mark.parametrize(
    "answer",
    [
        USUAL.replace(b"Content-Length: 5", b"Content-Length: 5\r\nTransfer-Encoding: chunked"),
        USUAL.replace(b"Content-Length: 5", b"Content-Length: -5"),
        USUAL.replace(b"Content-Length: 5", b"Content-Length: 50000000"),
        USUAL.replace(b"200", b"206"),
    ],
    ids=["in chunks", "of no length", "too large", "a part"],
)
async def test_a_body_of_another_form_is_not_read(answer: bytes) -> None:
    async with server(answering(answer)) as origin, connections() as http:
        assert (await http.get(origin, REQUEST, MOST)).body is None
        assert (await http.get(origin, REQUEST, MOST)).body is None, "what is left of it must not be the next answer"


@pytest.mark.parametrize(
    "answer",
    [
        USUAL.replace(b"Content-Length: 5", b"Content-Length: 5\r\nContent-Length: 4"),
        USUAL.replace(b"Content-Length: 5", b"Content-Length : 5"),
        USUAL.replace(b"200 OK", b"103 Early Hints"),
        USUAL.replace(b"HTTP/1.1", b"HTTP/3"),
        b"X" * 300_000,
        USUAL[:-1],
        b"HTTP/1.1 200 OK\r\nContent",
    ],
    ids=["two lengths", "a space before the colon", "hints", "another protocol", "endless", "cut", "cut in its head"],
)
async def test_an_answer_that_cannot_be_trusted_is_an_error(answer: bytes) -> None:
    async with server(answering(answer, once=True)) as origin, connections() as http:
        with pytest.raises(OSError):
            await http.get(origin, REQUEST, MOST)


async def test_bytes_that_nobody_asked_for_are_no_answer() -> None:
    sent_more = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(USUAL + (b"" if sent_more.is_set() else USUAL.replace(b"image", b"wrong")))
        sent_more.set()

    async with server(talk) as origin, connections() as http:
        for _ in range(3):
            assert (await http.get(origin, REQUEST, MOST)).body == b"image"


async def test_a_server_that_pauses_is_given_up_and_one_that_is_slow_is_not() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        for byte in USUAL[:12] if b"pause" in head else USUAL:
            writer.write(bytes([byte]))
            await asyncio.sleep(0.03)
        await reader.read()  # until the client has gone

    async with server(talk) as origin, connections(read_timeout=1.0) as http:
        assert (await http.get(origin, REQUEST, MOST)).body == b"image"
        with pytest.raises(TimeoutError):
            await http.get(origin, REQUEST.replace(b"key", b"pause"), MOST)


async def test_a_cancelled_get_leaves_no_connection_behind() -> None:
    asked, gone = asyncio.Event(), asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        asked.set()
        await reader.read()
        gone.set()

    async with server(talk) as origin, connections() as http, asyncio.timeout(10):
        getting = asyncio.create_task(http.get(origin, REQUEST, MOST))
        await asked.wait()
        getting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await getting
        await gone.wait()


async def test_nobody_listens() -> None:
    async with server(answering(USUAL)) as origin:
        pass
    async with connections() as http:
        with pytest.raises(OSError):
            await http.get(origin, REQUEST, MOST)


def answering(answer: bytes, *, once: bool = False) -> Talk:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readuntil(b"\r\n\r\n"):
            writer.write(answer)
            if once:
                return

    return talk


@asynccontextmanager
async def server(talk: Talk) -> AsyncIterator[Origin]:
    """A server that talks like this on each connection, until it returns or the client goes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await talk(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async with await asyncio.start_server(serve, HOST, 0) as listening:
        yield Origin(HOST, listening.sockets[0].getsockname()[1], tls=False)


@asynccontextmanager
async def connections(read_timeout: float = 10.0) -> AsyncIterator[HttpConnections]:
    def no_tls() -> None:
        raise AssertionError("nothing here is encrypted")

    http = HttpConnections(no_tls, most_idle=4, connect_timeout=10, read_timeout=read_timeout)  # type: ignore[arg-type]
    try:
        yield http
    finally:
        await http.close()
