"""Decodes audio files to mono samples at 16 kHz, and stops at every limit, whatever the file's header claims.

PyAV brings FFmpeg's libraries along, so no ffmpeg need be installed. Formats that may refer to other files or hosts
(playlists, for example) are not among those that it may open here.
"""

import contextlib
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from stoop_worker.errors import AudioTooLarge, AudioUndecodable

if TYPE_CHECKING:
    from av import AudioFifo, AudioFrame, AudioResampler, Packet
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
_BLOCK: Final = 1 << 17
"""Samples that are resampled by one call."""
_LONGEST_FRAME: Final = 60
"""Seconds of one frame: a block of 65,535 samples at 5 Hz would become 210 million samples at once."""


@dataclass(frozen=True, slots=True)
class AudioLimits:
    """Limits on accepted audio: encoded bytes, and seconds once decoded."""

    max_bytes: int = 128 << 20
    max_seconds: float = 4 * 3600.0


def go_on() -> None:
    """Check nothing."""


def decode(encoded: bytes, limits: AudioLimits, check: Check = go_on) -> npt.NDArray[np.int16]:
    """Decode the first audio stream of a file to mono samples at 16 kHz, int16; channels are averaged.

    Frames that are damaged are skipped, and a file that breaks off keeps the audio before that. Raises `AudioTooLarge`
    as soon as a limit is passed, and `AudioUndecodable` if there is no audio.
    """
    samples = bytearray()  # one array for each frame would take many times its samples where frames are short
    for piece in decoded(encoded, limits, check):
        samples += piece.data
    if not samples:
        raise AudioUndecodable("the file has no audio that can be decoded")
    return np.frombuffer(samples, dtype=np.int16)


def decoded(encoded: bytes, limits: AudioLimits, check: Check = go_on) -> Iterator[npt.NDArray[np.int16]]:
    """Yield the samples that `decode` returns in pieces of seconds, while later ones are not decoded yet."""
    if len(encoded) > limits.max_bytes:
        raise AudioTooLarge(f"the audio has {len(encoded)} bytes: at most {limits.max_bytes}")
    count = 0
    with _opened(encoded) as container:
        resampler = _Resampler()
        for frame in chain(_frames(container, _stream(container), limits, check), (None,)):
            for piece in resampler.take(frame):
                count += len(piece)
                if count > limits.max_seconds * SAMPLE_RATE:
                    raise _too_long(limits)
                yield piece


def packed_seconds(encoded: bytes, limits: AudioLimits, check: Check = go_on) -> float:
    """Return the length of the first audio stream by its packets, which are counted and not decoded.

    No header is believed, but a packet may still hold more than it says. Raises `AudioTooLarge` if the packets are
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
    with contextlib.suppress(av.FFmpegError, ValueError):  # the file breaks off there
        for packet in packets:
            check()
            yield packet


def _frames(
    container: "InputContainer", stream: "AudioStream", limits: AudioLimits, check: Check
) -> "Iterator[AudioFrame]":
    import av

    samples = 0
    for packet in _packets(container, stream, check):
        try:
            frames = packet.decode()
        except (av.FFmpegError, ValueError):
            continue  # a damaged frame; the next one may be whole
        for frame in frames:
            if frame.samples > _LONGEST_FRAME * frame.sample_rate:
                continue  # damaged, or made to fill the memory
            samples += frame.samples * max(1, frame.layout.nb_channels)
            if samples > limits.max_seconds * _USUAL_RATE:
                raise AudioTooLarge("the audio takes too much work to decode: lower its sample rate or cut it")
            yield frame


class _Resampler:
    """Turns frames into mono samples at 16 kHz, also where the form of the frames changes within a file.

    Frames are joined to blocks first: a call for each of their few hundred samples would take most of the time.
    """

    def __init__(self) -> None:
        self._form: tuple[int, str, str] | None = None
        self._joined: AudioFifo | None = None
        self._resampler: AudioResampler | None = None

    def take(self, frame: "AudioFrame | None") -> list[npt.NDArray[np.int16]]:
        """Return the samples that are ready after this frame, or after the last one, which is None."""
        import av

        try:
            return [_samples(each) for each in self._resampled(frame)]
        except (av.FFmpegError, ValueError):  # a damaged frame may claim a form that does not exist
            self._form = self._joined = self._resampler = None
            return []

    def _resampled(self, frame: "AudioFrame | None") -> "list[AudioFrame]":
        import av

        form = None if frame is None else (frame.sample_rate, frame.layout.name, frame.format.name)
        left: list[AudioFrame] = []
        if form != self._form:
            left = self._rest()
            self._form = form
            self._joined = av.AudioFifo() if form else None
            self._resampler = av.AudioResampler(format="s16", layout="mono", rate=SAMPLE_RATE) if form else None
        if frame is None or self._joined is None or self._resampler is None:
            return left
        frame.pts = None  # a gap in the times is not filled up
        self._joined.write(frame)
        return left + (self._resampler.resample(self._joined.read()) if self._joined.samples >= _BLOCK else [])

    def _rest(self) -> "list[AudioFrame]":
        """Return the samples that were held back."""
        if self._joined is None or self._resampler is None:
            return []
        block = self._joined.read()
        return (self._resampler.resample(block) if block else []) + self._resampler.resample(None)


def _samples(frame: "AudioFrame") -> npt.NDArray[np.int16]:
    return frame.to_ndarray().reshape(-1).astype(np.int16, copy=False)
