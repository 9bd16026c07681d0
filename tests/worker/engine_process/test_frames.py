import asyncio
import os
import socket
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from stoop_worker.engine_process.frames import receive, receive_async, send, send_now, write

Line = tuple[socket.socket, socket.socket]


@pytest.fixture
def line() -> Iterator[Line]:
    here, there = socket.socketpair()
    with here, there:
        yield here, there


def test_values_of_any_size_arrive_complete_and_in_order(line: Line) -> None:
    values = [b"x" * 5_000_000, {"a": 1}, b""]
    sending = threading.Thread(target=lambda: [send(line[0], value) for value in values])
    sending.start()
    assert [receive(line[1]) for _ in values] == [(value, None) for value in values]
    sending.join()


@dataclass(frozen=True, slots=True)
class Several:
    first: int
    rest: "tuple[One, ...]"


@dataclass(frozen=True)
class One:
    only: tuple[int, int]


@dataclass(frozen=True)
class Nothing:
    pass


@dataclass(frozen=True, kw_only=True)
class Named:
    value: str


@dataclass
class Derived:
    given: int
    doubled: int = field(init=False)

    def __post_init__(self) -> None:
        self.doubled = 2 * self.given


def test_dataclasses_of_any_kind_arrive_as_they_are(line: Line) -> None:
    changed = Derived(1)
    changed.doubled = 5
    values = [Several(1, (One((2, 3)), One((4, 5)))), Nothing(), Named(value="x"), changed]
    for value in values:
        send(line[0], value)
    assert [receive(line[1])[0] for _ in values] == values


def test_a_send_without_waiting_returns_the_unsent_bytes(line: Line) -> None:
    assert send_now(line[0], "small") == b""
    large = b"x" * 5_000_000
    rest = send_now(line[0], large)
    assert rest
    sending = threading.Thread(target=lambda: line[0].sendall(rest))
    sending.start()
    assert [receive(line[1])[0] for _ in range(2)] == ["small", large]
    sending.join()


def test_each_file_stays_with_its_value(line: Line) -> None:
    for text in (b"one", None, b"two"):
        if text is None:
            send(line[0], text)
            continue
        reader, writer = os.pipe()
        os.write(writer, text)
        send(line[0], text, reader)
        os.close(reader)
        os.close(writer)
    for _ in range(3):
        value, file = receive(line[1])
        assert (file is None) == (value is None)
        if file is not None:
            assert os.read(file, 10) == value
            os.close(file)


@pytest.mark.parametrize("cut", [0, 3, 8, 20])
def test_the_end_in_the_middle_of_a_frame_is_an_end(line: Line, cut: int) -> None:
    frame = struct.pack("!Q", 100) + b"x" * 100
    line[0].sendall(frame[:cut])
    line[0].close()
    with pytest.raises(EOFError):
        receive(line[1])


async def test_a_pipe_is_read_in_the_loop() -> None:
    up, into = os.pipe()
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(up, "rb", buffering=0)
    )
    with os.fdopen(into, "wb") as pipe:
        write(pipe, ["first"])
        write(pipe, "second")
    assert [await receive_async(reader), await receive_async(reader)] == [["first"], "second"]
    with pytest.raises(EOFError):
        await receive_async(reader)
    transport.close()
