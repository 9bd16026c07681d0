"""Decodes audio files to mono samples at 16 kHz, and stops at every limit, whatever the file's header claims.

PyAV brings FFmpeg's libraries along, so no ffmpeg need be installed. Formats that may refer to other files or hosts
(playlists, for example) are not among those that it may open here.
"""

import contextlib
import io
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from stoop_worker.audio.packets import decoded_blocks
from stoop_worker.audio.resample import resampled
from stoop_worker.errors import AudioTooLarge, AudioUndecodable

if TYPE_CHECKING:
    from av import AudioFrame, Packet
    from av.audio.stream import AudioStream
    from av.container import InputContainer

__all__ = ["SAMPLE_RATE", "AudioLimits", "Check", "decode", "decoded", "go_on", "packed_seconds"]

SAMPLE_RATE: Final = 16_000
"""Samples of one second after decoding."""

Check = Callable[[], None]
"""Called every few milliseconds of a long piece of work; whatever it raises ends the work."""

_FORMATS: Final = "aac,aiff,amr,asf,au,caf,flac,matroska,mov,mp3,mpeg,mpegts,ogg,w64,wav"
_CODECS: Final = (
    *("aac", "alac", "amrnb", "amrwb", "flac", "mp1", "mp1float", "mp2", "mp2float", "mp3", "mp3float", "opus"),
    *("vorbis", "wmav1", "wmav2", "pcm_alaw", "pcm_f32be", "pcm_f32le", "pcm_f64be", "pcm_f64le", "pcm_mulaw"),
    *("pcm_s16be", "pcm_s16le", "pcm_s24be", "pcm_s24le", "pcm_s32be", "pcm_s32le", "pcm_s8", "pcm_u8"),
)
_OPTIONS: Final = {"format_whitelist": _FORMATS, "codec_whitelist": ",".join(_CODECS), "protocol_whitelist": "none"}
_NAMES: Final = "MP3, M4A, MP4, WAV, FLAC, OGG, Opus, WebM, AAC, AIFF, AMR, CAF, WMA"
_USUAL_RATE: Final = 2 * 48_000
"""Samples of a second of stereo, by which the work of decoding is bounded."""
_FAR: Final = 1.1
"""The share of the limit from which a length by packets alone is too long; below it, the decoded samples decide."""


@dataclass(frozen=True, slots=True)
class AudioLimits:
    """Limits on accepted audio: encoded bytes, and seconds once decoded."""

    max_bytes: int = 128 << 20
    max_seconds: float = 4 * 3600.0


def go_on() -> None:
    """Check nothing."""


def decode(encoded: bytes, limits: AudioLimits, check: Check = go_on) -> npt.NDArray[np.int16]:
    """Decode the first audio stream of a file to mono samples at 16 kHz, int16; channels are averaged.

    Damaged frames are skipped, and a truncated file keeps the audio before its end. Raises `AudioTooLarge`
    as soon as a limit is passed, and `AudioUndecodable` if there is no audio.
    """
    samples = bytearray()  # one array for each frame would take many times its samples where frames are short
    for piece in decoded(encoded, limits, check):
        samples += piece.data
    if not samples:
        raise AudioUndecodable("the file has no audio that can be decoded")
    return np.frombuffer(samples, dtype=np.int16)


def decoded(encoded: bytes, limits: AudioLimits, check: Check = go_on) -> Generator[npt.NDArray[np.int16], None, None]:
    """Yield the samples that `decode` returns, in pieces of a few seconds, before later ones are decoded.

    Threads of their own decode the frames, so `check` is called there. Close the iterator if you stop early.
    """
    if len(encoded) > limits.max_bytes:
        raise AudioTooLarge(f"the audio has {len(encoded)} bytes: at most {limits.max_bytes}")
    count = 0
    with (
        _opened(encoded) as container,
        closing(_blocks(container, check)) as joined,
    ):
        for piece in resampled(_bounded(joined, limits), SAMPLE_RATE):
            count += len(piece)
            if count > limits.max_seconds * SAMPLE_RATE:
                raise _too_long(limits)
            yield piece


def packed_seconds(encoded: bytes, limits: AudioLimits, check: Check = go_on) -> float:
    """Return the length of the first audio stream by its packets, which are counted and not decoded.

    No header is trusted, but a packet may still hold more than it declares. Raises `AudioTooLarge` if the packets are
    longer than the limit by far, and `AudioUndecodable` if there is no audio.
    """
    first = last = lasting = 0.0
    with _opened(encoded) as container:
        stream = _stream(container)
        base = float(stream.time_base or 0)
        for number, packet in enumerate(_packets(container, stream, check)):
            lasting += (packet.duration or 0) * base
            if packet.pts is not None:
                last = packet.pts * base
                first = first if number else last
            if lasting > _FAR * limits.max_seconds:
                raise _too_long(limits)
    return lasting or max(0.0, last - first)


def _opened(encoded: bytes) -> "InputContainer":
    import av

    if not encoded:
        raise AudioUndecodable("the file is empty")
    try:
        return av.open(io.BytesIO(encoded), "r", container_options=_OPTIONS, metadata_errors="ignore")
    except (av.FFmpegError, ValueError) as error:
        raise AudioUndecodable(f"not a file of an accepted format ({_NAMES})") from error


def _stream(container: "InputContainer") -> "AudioStream":
    stream = next(iter(container.streams.audio), None)
    if stream is None or stream.codec_context is None:
        raise AudioUndecodable("the file has no audio stream")
    codec = stream.codec_context.codec.name
    if codec not in _CODECS:
        raise AudioUndecodable(f"the audio is encoded as {codec}, which is not accepted")
    return stream


def _too_long(limits: AudioLimits) -> AudioTooLarge:
    return AudioTooLarge(f"the audio is longer than {limits.max_seconds:g} seconds: cut it into parts")


def _packets(container: "InputContainer", stream: "AudioStream", check: Check) -> "Iterator[Packet[AudioStream]]":
    import av

    packets = container.demux(stream)
    with contextlib.suppress(av.FFmpegError, ValueError):  # the file is truncated there
        for packet in packets:
            check()
            yield packet


def _blocks(container: "InputContainer", check: Check) -> "Generator[AudioFrame, None, None]":
    stream = _stream(container)
    return decoded_blocks(_packets(container, stream, check), stream.codec_context)


def _bounded(frames: "Iterator[AudioFrame]", limits: AudioLimits) -> "Iterator[AudioFrame]":
    """Yield the frames; raises `AudioTooLarge` once they are too much work."""
    samples = 0
    for frame in frames:
        samples += frame.samples * max(1, frame.layout.nb_channels)
        if samples > limits.max_seconds * _USUAL_RATE:
            raise AudioTooLarge("the audio takes too much work to decode: lower its sample rate or cut it")
        yield frame
