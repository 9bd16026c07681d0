"""Decodes packets to blocks of samples: one after another, or those of an MP3 file in several threads.

Where a decoder begins in the middle of an MP3 file, it needs the packets before that place: a packet may hold the
beginning of later ones, at most 511 bytes before them, and the samples of two neighbours overlap. The threads decode
a batch with one call, because they would wait for Python's lock after each packet otherwise.
"""

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, Final

from stoop_worker.audio.ahead import ahead, side_by_side
from stoop_worker.audio.mp3 import decoded_together
from stoop_worker.audio.resample import blocks

if TYPE_CHECKING:
    from av import AudioFrame, Packet
    from av.audio.stream import AudioStream

    _Packets = list[Packet[AudioStream]]

__all__ = ["decoded_blocks"]

_CODEC: Final = "mp3float"
"""FFmpeg's usual decoder of MP3; that of whole numbers carries its rounding from one packet to the next."""

_TOGETHER: Final = 912
"""The packets that one thread decodes: 24 seconds of 44.1 kHz."""

_BEFORE: Final = 48
"""The packets before them that it decodes for nothing: the shortest have 11 bytes for others."""

_LONGEST_FRAME: Final = 60
"""Seconds of one frame: a block of 65,535 samples at 5 Hz would become 210 million samples at once."""


def decoded_blocks(packets: "Iterator[Packet[AudioStream]]", codec: str) -> "Generator[AudioFrame, None, None]":
    """Yield blocks of a few seconds, which other threads decode; damaged packets are skipped."""
    if codec != _CODEC:
        return ahead(blocks(_frames(packets, lambda packet: packet.decode())))
    return _flat(side_by_side(_of_batch, ahead(_batches(packets))))


def _flat(batches: "Generator[list[AudioFrame], None, None]") -> "Generator[AudioFrame, None, None]":
    with closing(batches):
        for batch in batches:
            yield from batch


def _batches(packets: "Iterator[Packet[AudioStream]]") -> "Generator[tuple[_Packets, _Packets], None, None]":
    """Yield packets to decode together, after the packets before them."""
    before: _Packets = []
    while batch := list(islice(packets, _TOGETHER)):
        yield before, batch
        before = batch[-_BEFORE:]


def _of_batch(batch: "tuple[_Packets, _Packets]") -> "list[AudioFrame]":
    before, packets = batch
    return decoded_together(before, packets) or _one_by_one(before, packets)


def _one_by_one(before: "_Packets", packets: "_Packets") -> "list[AudioFrame]":
    import av

    context = av.CodecContext.create(_CODEC, "r")
    assert isinstance(context, av.AudioCodecContext)
    for _ in _frames(before, context.decode):
        pass
    return list(blocks(_frames(packets, context.decode)))


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
