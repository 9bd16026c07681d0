"""One answer of a web server, read within bounds: only what a plain GET of an image needs."""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Final

from worker.errors import ImageTooLarge, StorageUnavailable

__all__ = ["HEAD_BYTES", "Head", "read_body", "read_head"]

HEAD_BYTES: Final = 32 << 10
"""Most bytes of an answer's status line and headers."""

_PIECE: Final = 64 << 10
_STATUS: Final = re.compile(rb"HTTP/1\.[01] (\d{3})(?: [^\r\n]*)?")
_FIELD: Final = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\r\n\0]*?)[ \t]*")
_LENGTH: Final = re.compile(r"\d{1,15}")
_CHUNK: Final = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;[^\r\n]*)?\r\n")
_INTERIM: Final = 5


@dataclass(frozen=True, slots=True)
class Head:
    """Status code, and headers by their names in lower case; equal names are joined by a comma."""

    status_code: int
    headers: Mapping[str, str]


async def read_head(reader: asyncio.StreamReader) -> Head:
    """Read up to the body of the answer, past interim answers; the reader's limit bounds it.

    Raises `StorageUnavailable` if it is no HTTP.
    """
    for _ in range(_INTERIM):
        try:
            head = _parse(await reader.readuntil(b"\r\n\r\n"))
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            raise StorageUnavailable("the web server's answer has no end of its headers") from None
        if head.status_code >= 200:
            return head
    raise StorageUnavailable("the web server only ever says that it will answer")


async def read_body(reader: asyncio.StreamReader, head: Head, *, max_bytes: int, gap: float) -> bytes:
    """Read the body; raises `ImageTooLarge` as soon as that is known, `TimeoutError` after `gap` s without a byte."""
    coding, length = head.headers.get("transfer-encoding"), head.headers.get("content-length")
    if coding is not None and (coding.lower() != "chunked" or length is not None):
        raise StorageUnavailable("the web server frames its answer in a way that cannot be read")
    if coding:
        pieces = _chunks(reader, max_bytes, gap)
    elif length is None:
        pieces = _rest(reader, gap)
    else:
        pieces = _exactly(reader, _size(length, max_bytes), gap)
    body = bytearray()
    async for piece in pieces:
        body += piece
        _check_size(len(body), max_bytes)
    return bytes(body)


def _parse(text: bytes) -> Head:
    status, *lines = text.removesuffix(b"\r\n\r\n").split(b"\r\n")
    if not (match := _STATUS.fullmatch(status)):
        raise StorageUnavailable("the web server does not speak HTTP/1.1")
    headers: dict[str, str] = {}
    for line in lines:
        if not (field := _FIELD.fullmatch(line)):
            raise StorageUnavailable("the web server sent a header that cannot be read")
        name, value = field[1].decode().lower(), field[2].decode("latin-1")
        headers[name] = f"{headers[name]},{value}" if name in headers else value
    return Head(int(match[1]), headers)


def _size(length: str, max_bytes: int) -> int:
    if not _LENGTH.fullmatch(length):
        raise StorageUnavailable("the web server announces no number as the size of its answer")
    _check_size(int(length), max_bytes)
    return int(length)


def _check_size(size: int, max_bytes: int) -> None:
    if size > max_bytes:
        raise ImageTooLarge(f"the image has {size} bytes or more: at most {max_bytes}")


async def _exactly(reader: asyncio.StreamReader, size: int, gap: float) -> AsyncIterator[bytes]:
    while size:
        piece = await _some(reader, size, gap)
        if not piece:
            raise StorageUnavailable("the web server broke off in the middle of the image")
        size -= len(piece)
        yield piece


async def _rest(reader: asyncio.StreamReader, gap: float) -> AsyncIterator[bytes]:
    while piece := await _some(reader, _PIECE, gap):
        yield piece


async def _chunks(reader: asyncio.StreamReader, max_bytes: int, gap: float) -> AsyncIterator[bytes]:
    while size := await _chunk_size(reader, max_bytes, gap):
        async for piece in _exactly(reader, size, gap):
            yield piece
        async for end in _exactly(reader, 2, gap):
            if end.strip(b"\r\n"):
                raise StorageUnavailable("the web server sent a chunk that cannot be read")


async def _chunk_size(reader: asyncio.StreamReader, max_bytes: int, gap: float) -> int:
    try:
        async with asyncio.timeout(gap):
            line = await reader.readuntil(b"\r\n")
    except asyncio.IncompleteReadError:
        raise StorageUnavailable("the web server broke off in the middle of the image") from None
    except asyncio.LimitOverrunError:
        line = b""
    if not (match := _CHUNK.fullmatch(line)):
        raise StorageUnavailable("the web server sent a chunk that cannot be read")
    size = int(match[1], 16)
    _check_size(size, max_bytes)
    return size


async def _some(reader: asyncio.StreamReader, most: int, gap: float) -> bytes:
    async with asyncio.timeout(gap):
        return await reader.read(min(most, _PIECE))
