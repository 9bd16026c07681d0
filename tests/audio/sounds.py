"""Sounds and the files that hold them, made by the library that the product decodes with."""

import io
from pathlib import Path

import av
import numpy as np
import numpy.typing as npt

__all__ = ["encoded", "tone", "write_recordings"]


def tone(seconds: float, hertz: float = 440.0, rate: int = 16_000) -> npt.NDArray[np.int16]:
    """Return a sine of half the full level."""
    time = np.arange(int(seconds * rate)) / rate
    return (16_000 * np.sin(2 * np.pi * hertz * time)).astype(np.int16)


def encoded(
    samples: npt.NDArray[np.int16],
    kind: str = "wav",
    codec: str = "pcm_s16le",
    *,
    rate: int = 16_000,
    layout: str = "mono",
    picture: bool = False,
    block: int | None = None,
) -> bytes:
    """Return a file of interleaved samples, in frames of `block`; with a `picture` a video stream comes before them."""
    written = io.BytesIO()
    with av.open(written, "w", format=kind) as container:
        video = container.add_stream("mpeg4", rate=10) if picture else None
        options = {} if block is None else {"frame_size": str(block)}
        stream = container.add_stream(codec, rate=rate, layout=layout, options=options)
        if video is not None:
            video.width, video.height, video.pix_fmt = 32, 32, "yuv420p"
            container.mux(video.encode(av.VideoFrame(32, 32, "yuv420p")))
            container.mux(video.encode(None))
        frame = av.AudioFrame.from_ndarray(samples[None], format="s16", layout=layout)
        frame.sample_rate = rate
        context = stream.codec_context
        context.open(strict=False)  # sets the size of a frame
        resampler = av.AudioResampler(context.format, layout, rate, frame_size=context.frame_size or 0)
        for piece in [*resampler.resample(frame), *resampler.resample(None), None]:
            container.mux(stream.encode(piece))
    return written.getvalue()


def write_recordings(folder: Path, *, count: int, bad: int, long: int = 0) -> None:
    """Write `count` recordings, each of a tone of its own: `bad` broken files, `long` of 32 seconds, others short.

    A broken file is, in turn, a text, a few bytes of a header, or empty.
    """
    folder.mkdir()
    for number in range(count):
        seconds = 32.0 if number >= count - long else 1.0 + number % 5
        whole = encoded(tone(seconds, 200.0 + 7 * number), "flac", "flac")
        broken = (b"this is no recording", whole[:30], b"")[number % 3]
        (folder / f"talk-{number:04}.flac").write_bytes(broken if number < bad else whole)
