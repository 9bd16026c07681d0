"""MP3 files, which several threads decode: the samples are those of one decoder."""

import io

import av
import numpy as np
import numpy.typing as npt
import pytest

from stoop_worker.audio import AudioLimits, decode, packets
from tests.audio.sounds import encoded

RATE = 16_000


def of_one_decoder(file: bytes) -> npt.NDArray[np.int16]:
    """Decode packet by packet; the file has the rate already."""
    resampler = av.AudioResampler(format="s16", layout="mono", rate=RATE)
    samples = []
    with av.open(io.BytesIO(file)) as container:
        for packet in container.demux(audio=0):
            try:
                frames = packet.decode()
            except av.FFmpegError:
                continue
            for frame in frames:
                frame.pts = None
                samples += [each.to_ndarray()[0] for each in resampler.resample(frame)]
    return np.concatenate(samples)


@pytest.fixture(scope="module")
def file() -> bytes:
    """Return 40 seconds in 1,100 packets, which share their bytes."""
    time = np.arange(40 * RATE)
    chirp = 8000 * np.sin(time * 0.05 + 20 * np.sin(time * 0.0003)) * (np.sin(time * 0.0005) > -0.5)
    noise = np.random.default_rng(0).normal(scale=300, size=len(time))
    return encoded((chirp + noise).astype(np.int16), "mp3", "libmp3lame", rate=RATE)


def test_a_file_of_many_packets_has_the_samples_of_one_decoder(file: bytes) -> None:
    assert np.array_equal(decode(file, AudioLimits()), of_one_decoder(file))


def test_a_damaged_file_has_the_samples_of_one_decoder(file: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    damaged = bytearray(file)
    for start in range(5000, len(damaged) - 300, len(damaged) // 23):
        damaged[start : start + 300] = bytes(300)
    found = decode(bytes(damaged), AudioLimits())
    monkeypatch.setattr(packets, "_CODEC", "no codec")  # so that packets are decoded one after another
    assert np.array_equal(found, decode(bytes(damaged), AudioLimits()))
