"""Decodes packets to blocks of samples: one after another, or batches of them in several threads.

Each packet of FLAC stands alone. Where a decoder begins in the middle of an MP3 file, it needs the packets before that
place: a packet may hold the beginning of later ones, at most 511 bytes before them, and the samples of two neighbours
overlap. MP3 has many short packets, so a thread decodes them with one call for each block; otherwise the threads would
wait for Python's lock after each packet.
"""

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, Final

from stoop_worker.audio.ahead import ahead, side_by_side
from stoop_worker.audio.mp3 import decoded_together
from stoop_worker.audio.resample import blocks

if TYPE_CHECKING:
    from av import AudioCodecContext, AudioFrame, Packet
    from av.audio.stream import AudioStream

    _Packets = list[Packet[AudioStream]]
    _Frames = Iterator[AudioFrame]
    _Batch = tuple[list[AudioFrame], _Frames]

__all__ = ["decoded_blocks"]

_MP3: Final = "mp3float"
"""FFmpeg's usual decoder of MP3; that of whole numbers carries its rounding from one packet to the next."""

_BATCHES: Final = {_MP3: (912, 48), "flac": (228, 0)}
"""The packets that one thread decodes, 24 seconds of 44.1 kHz, and those before them that it decodes for nothing.

The shortest packets of MP3 have 11 bytes for others.
"""

_READY: Final = 1 << 22
"""The samples of all channels that a thread decodes before they are wanted; packets may hold more than is usual."""

_LONGEST_FRAME: Final = 60
"""Seconds of one frame: a block of 65,535 samples at 5 Hz would become 210 million samples at once."""


def decoded_blocks(
    packets: "Iterator[Packet[AudioStream]]", context: "AudioCodecContext"
) -> "Generator[AudioFrame, None, None]":
    """Yield blocks of a few seconds, which other threads decode; damaged packets are skipped."""
    codec, header = context.codec.name, context.extradata
    if codec not in _BATCHES:
        return ahead(blocks(_frames(packets, lambda packet: packet.decode())))
    batches = ahead(_batches(packets, *_BATCHES[codec]))
    return _in_order(side_by_side(lambda batch: _of_batch(codec, header, *batch), batches))


def _in_order(batches: "Generator[_Batch, None, None]") -> "Generator[AudioFrame, None, None]":
    with closing(batches):
        for ready, rest in batches:
            yield from ready
            yield from rest


def _batches(
    packets: "Iterator[Packet[AudioStream]]", together: int, overlapping: int
) -> "Generator[tuple[_Packets, _Packets], None, None]":
    """Yield packets to decode together, after the packets before them."""
    before: _Packets = []
    while batch := list(islice(packets, together)):
        yield before, batch
        before = batch[len(batch) - overlapping :]


def _of_batch(codec: str, header: bytes | None, before: "_Packets", packets: "_Packets") -> "_Batch":
    """Return the first blocks of a batch, usually all, and an iterator that decodes the rest."""
    if codec == _MP3 and (together := decoded_together(before, packets)):
        return together, iter(())
    return _first(_one_by_one(codec, header, before, packets))


def _one_by_one(codec: str, header: bytes | None, before: "_Packets", packets: "_Packets") -> "_Frames":
    import av

    context = av.CodecContext.create(codec, "r")
    assert isinstance(context, av.AudioCodecContext)
    context.extradata = header
    for _ in _frames(before, context.decode):
        pass
    return blocks(_frames(packets, context.decode))


def _first(found: "_Frames") -> "_Batch":
    ready: list[AudioFrame] = []
    room = _READY
    while room > 0 and (block := next(found, None)) is not None:
        ready.append(block)
        room -= block.samples * block.layout.nb_channels
    return ready, found


def _frames(
    packets: "Iterable[Packet[AudioStream]]", decode: "Callable[[Packet[AudioStream]], list[AudioFrame]]"
) -> "Iterator[AudioFrame]":
    import av

    for packet in packets:
        try:
            frames = decode(packet)
        except (av.FFmpegError, ValueError):
            continue  # a damaged frame; the next one may be whole
        for frame in frames:
            if frame.samples <= _LONGEST_FRAME * frame.sample_rate:  # else damaged, or made to fill the memory
                yield frame
