"""Log-mel features against values computed in float64 from the published steps."""

import numpy as np
import pytest

from stoop_worker.audio import AudioLimits, MelGeometry, log_mel, record
from tests.audio.sounds import encoded, tone


@pytest.fixture(scope="module")
def signal() -> np.ndarray:
    time = np.arange(480_000) / 16_000
    swept = 0.1 * np.sin(2 * np.pi * (200 + 100 * time) * time)
    return (0.5 * np.sin(2 * np.pi * 440 * time) * (time < 10) + swept).astype(np.float32)


@pytest.mark.parametrize(
    ("mels", "first", "total"),
    [(80, (1.067555, 0.523619, -0.341004), -102365.654), (128, (0.991796, 0.447859, -0.416763), -152949.771)],
)
def test_features_have_the_golden_values(signal: np.ndarray, mels: int, first: tuple[float, ...], total: float) -> None:
    features = log_mel(signal, mels)
    assert features.shape == (mels, 3000) and features.dtype == np.float32
    assert features[0, :3] == pytest.approx(first, abs=2e-5)
    assert features.sum(dtype=np.float64) == pytest.approx(total, abs=0.1)
    assert mels != 80 or features[10, 100] == pytest.approx(1.398798, abs=2e-5)


def test_the_loudest_frame_of_the_file_sets_the_floor_of_all() -> None:
    rest = np.zeros(16_000, dtype=np.int16)
    quiet = np.concatenate((tone(2.0, 1000.0) // 100, rest))
    loud = np.concatenate((quiet, tone(1.0, 1000.0), rest))
    alone, together = log_mel(quiet, 80), log_mel(loud, 80)
    assert together.shape == (80, 500)
    # a hundredth of the level is 4 decades of power; features are decades divided by 4
    assert together[:, 250] == pytest.approx(alone[:, 250] + 1.0, abs=0.1)
    assert together.max() - together.min() == pytest.approx(2.0, abs=1e-6)


def test_a_window_after_the_end_of_the_audio_is_filled_with_zeros() -> None:
    found = record(encoded(tone(31.0)), AudioLimits(), MelGeometry(80))
    assert found.duration == 31.0 and found.count == 3100
    first, last = found.window(0, found.count), found.window(3000, found.count)
    assert (first.content, last.content) == (3000, 100)
    assert np.array_equal(first.frames[:, -100:], found.frames[:, 2900:3000])
    assert np.array_equal(last.frames[:, :100], found.frames[:, 3000:])
    assert last.frames.shape == (80, 3000) and not last.frames[:, 100:].any()
    assert found.window(0, 40).content == 40, "a span may end before its window"


def test_silence_has_features_too() -> None:
    features = log_mel(np.zeros(16_000, dtype=np.int16), 80)
    # a processor may round the logarithm in the last bit
    assert np.unique(features).tolist() == pytest.approx([-1.5], abs=1e-6)
