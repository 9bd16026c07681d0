"""A server that greets like Redis and answers every command of the queue with one error."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

__all__ = ["refusing_redis"]

# commands that redis-py sends by itself to set up or check a connection
_GREETINGS = {b"CLIENT", b"PING", b"SELECT"}


@contextlib.asynccontextmanager
async def refusing_redis(error: str) -> AsyncIterator[str]:
    """Yield the URL of a server that answers with `error`, a code word and a text as in Redis's protocol."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while command := await _read_command(reader):
                writer.write(b"+OK\r\n" if command[0].upper() in _GREETINGS else f"-{error}\r\n".encode())
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0"


async def _read_command(reader: asyncio.StreamReader) -> list[bytes]:
    head = await reader.readline()
    return [await _read_word(reader) for _ in range(int(head[1:]))] if head else []


async def _read_word(reader: asyncio.StreamReader) -> bytes:
    length = int((await reader.readline())[1:])
    return (await reader.readexactly(length + 2))[:-2]
