"""Decodes a batch of MP3 packets by one call for each block of samples.

FFmpeg's source `amovie` reads a file, cuts it into packets and decodes them, all without Python's lock. Joined packets
are such a file.
"""

from base64 import b64encode
from typing import TYPE_CHECKING, Final

from stoop_worker.audio.resample import BLOCK

if TYPE_CHECKING:
    from av import AudioFrame, Packet
    from av.audio.stream import AudioStream

    _Packets = list[Packet[AudioStream]]

__all__ = ["decoded_together"]

_LONGEST_PACKET: Final = 1441
"""Bytes of a packet of MP3 at most: 320,000 bits a second at 32 kHz."""

_OPTIONS: Final = "format_whitelist=mp3:codec_whitelist=mp3float:protocol_whitelist=data"
_VERSION_1: Final = 0x08
"""The bit of a packet's second byte that is set where a packet has 1,152 samples; otherwise it has 576."""


def decoded_together(before: "_Packets", packets: "_Packets") -> "list[AudioFrame] | None":
    """Return blocks of the samples that a decoder which begins with `before` gives for `packets`.

    Return None unless every packet is whole and gives all of its samples: then they must be decoded one by one.
    """
    import av

    together = before + packets
    file = b"".join(together)
    if len(file) > _LONGEST_PACKET * len(together) or not all(_gives_all(packet) for packet in together):
        return None
    samples = 1152 if file[1] & _VERSION_1 else 576  # of a packet
    try:
        frames = _decoded(file, samples * len(before))
    except (av.FFmpegError, ValueError):
        return None
    return frames if sum(frame.samples for frame in frames) == samples * len(packets) else None


def _gives_all(packet: "Packet[AudioStream]") -> bool:
    """Tell whether a decoder gives all samples of a packet; some are only padding at the ends of the file."""
    return packet.size > 0 and not packet.has_sidedata("skip_samples")


def _decoded(file: bytes, start: int) -> "list[AudioFrame]":
    """Decode a file of MP3 from sample `start` on; raises an error of FFmpeg if any packet is damaged."""
    import av
    from av.filter import Graph

    graph = Graph()
    graph.threads = 1
    address = "data:audio/mpeg;base64," + b64encode(file).decode()
    source = graph.add("amovie", filename=address, format_name="mp3", format_opts=_OPTIONS)
    sink = graph.add("abuffersink")
    later = graph.add("atrim", start_sample=str(start))
    graph.link_nodes(source, later, graph.add("asetnsamples", n=str(BLOCK), p="0"), sink).configure()
    frames: list[AudioFrame] = []
    while True:
        try:
            frame = sink.pull()
        except av.error.EOFError:
            return frames
        assert isinstance(frame, av.AudioFrame)
        frame.pts = None  # the next block follows, whatever the times of the packets were
        frames.append(frame)
