"""Values between the two processes, each in a frame: its length, then its pickle.

Pickle is safe here: both ends are this program, one the parent of the other, and no other process can open the
connection.
"""

import asyncio
import contextlib
import pickle
import socket
import struct
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from io import BytesIO
from operator import attrgetter
from typing import Any, BinaryIO, Final

__all__ = ["receive", "receive_async", "send", "send_now", "write"]

_HEADER = struct.Struct("!Q")

_Reduced = tuple[type, tuple[Any, ...]]


class _Reductions(dict[type, Callable[[Any], _Reduced]]):
    """By its type, the function that turns a dataclass into the call that makes it again.

    Pickle's own way calls Python for each field, and takes twice as long.
    """

    def __missing__(self, kind: type) -> Callable[[Any], _Reduced]:
        names = [field.name for field in fields(kind) if field.init and not field.kw_only] if is_dataclass(kind) else []
        if not names or len(names) < len(fields(kind)):
            raise KeyError(kind)  # pickle then goes its own way
        values = attrgetter(*names)
        alone = len(names) == 1
        self[kind] = (lambda value: (kind, (values(value),))) if alone else (lambda value: (kind, values(value)))
        return self[kind]


_REDUCTIONS: Final = _Reductions()


def send(connection: socket.socket, value: object, file: int | None = None) -> None:
    """Send one value, and an open file with it; blocks while the other end does not read. Raises OSError."""
    frame = memoryview(_pack(value))
    sent = 0 if file is None else socket.send_fds(connection, [frame], [file])
    connection.sendall(frame[sent:])


def send_now(connection: socket.socket, value: object) -> bytes:
    """Send as much of one value as the connection takes at once; return the rest. Raises OSError."""
    frame = _pack(value)
    with contextlib.suppress(BlockingIOError):
        return frame[connection.send(frame, socket.MSG_DONTWAIT) :]
    return frame


def receive(connection: socket.socket) -> tuple[Any, int | None]:
    """Wait for one value, and the descriptor of the file sent with it, now ours; EOFError if the other end closed."""
    header, files, _, _ = socket.recv_fds(connection, _HEADER.size, 1)
    if not header:
        raise EOFError
    header += _receive_exactly(connection, _HEADER.size - len(header))
    value = pickle.loads(_receive_exactly(connection, _HEADER.unpack(header)[0]))
    return value, files[0] if files else None


def write(pipe: BinaryIO, value: object) -> None:
    """Write one value to a pipe; blocks while the other end does not read. Raises OSError."""
    pipe.write(_pack(value))
    pipe.flush()


async def receive_async(reader: asyncio.StreamReader) -> Any:
    """Wait for one value from a pipe; EOFError when the other end has closed."""
    header = await reader.readexactly(_HEADER.size)
    return pickle.loads(await reader.readexactly(_HEADER.unpack(header)[0]))


def _pack(value: object) -> bytes:
    file = BytesIO()
    pickler = pickle.Pickler(file, pickle.HIGHEST_PROTOCOL)
    pickler.dispatch_table = _REDUCTIONS
    pickler.dump(value)
    packed = file.getvalue()
    return _HEADER.pack(len(packed)) + packed


def _receive_exactly(connection: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        piece = connection.recv(size - len(received))
        if not piece:
            raise EOFError
        received += piece
    return bytes(received)
