"""Values between the two processes: each a frame of its length and its pickle.

Pickle is safe here: both ends are this program, one the parent of the other, and nobody else can open the line.
"""

import asyncio
import pickle
import socket
import struct
from typing import Any, BinaryIO

__all__ = ["receive", "receive_soon", "send", "write"]

_HEAD = struct.Struct("!Q")


def send(line: socket.socket, value: object, file: int | None = None) -> None:
    """Send one value, with an open file beside it; blocks while the other end is behind. Raises OSError."""
    frame = memoryview(_pack(value))
    sent = 0 if file is None else socket.send_fds(line, [frame], [file])
    line.sendall(frame[sent:])


def receive(line: socket.socket) -> tuple[Any, int | None]:
    """Wait for one value, and the descriptor of the file beside it, now ours; EOFError if the other end has closed."""
    head, files, _, _ = socket.recv_fds(line, _HEAD.size, 1)
    if not head:
        raise EOFError
    head += _receive_exactly(line, _HEAD.size - len(head))
    value = pickle.loads(_receive_exactly(line, _HEAD.unpack(head)[0]))
    return value, files[0] if files else None


def write(pipe: BinaryIO, value: object) -> None:
    """Write one value to a pipe; blocks while the other end is behind. Raises OSError."""
    pipe.write(_pack(value))
    pipe.flush()


async def receive_soon(reader: asyncio.StreamReader) -> Any:
    """Wait for one value from a pipe; EOFError when the other end has closed."""
    head = await reader.readexactly(_HEAD.size)
    return pickle.loads(await reader.readexactly(_HEAD.unpack(head)[0]))


def _pack(value: object) -> bytes:
    packed = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    return _HEAD.pack(len(packed)) + packed


def _receive_exactly(line: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        piece = line.recv(size - len(received))
        if not piece:
            raise EOFError
        received += piece
    return bytes(received)
