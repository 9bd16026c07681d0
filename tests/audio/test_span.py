"""Cutting a recording where it is quiet, and finding the parts that may contain speech."""

import numpy as np
import numpy.typing as npt
import pytest

from stoop_worker.audio import AudioLimits, Cutting, MelGeometry, Span, parts, record
from stoop_worker.audio.span import in_windows
from stoop_worker.audio.voice import voiced
from tests.audio.sounds import encoded, tone


def features(count: int, *quiet: tuple[int, int]) -> npt.NDArray[np.float32]:
    """Return loud frames with quiet ones among them."""
    frames = np.ones((4, count), dtype=np.float32)
    for start, stop in quiet:
        frames[:, start:stop] = -1
    return frames


def sound(*parts: tuple[float, bool]) -> npt.NDArray[np.int16]:
    """Return seconds of a tone (True) and of silence, one after another."""
    pieces = [tone(seconds) if loud else np.zeros(int(seconds * 16_000), dtype=np.int16) for seconds, loud in parts]
    return np.concatenate(pieces)


def test_a_long_span_is_cut_in_the_last_pause_that_fits_a_window() -> None:
    frames = features(7000, (900, 1000), (2400, 2460), (2700, 2760), (4000, 4100), (5500, 5530))
    assert in_windows(frames, [Span(0, 7000)]) == (Span(0, 2745), Span(2745, 5515), Span(5515, 7000))


def test_a_recording_without_any_pause_is_cut_after_full_windows() -> None:
    spans = in_windows(features(9500), [Span(0, 9500)])
    assert [span.start for span in spans] == [0, *(span.stop for span in spans[:-1])] and spans[-1].stop == 9500
    assert all(2900 <= span.stop - span.start <= 3000 for span in spans[:-1])


def test_neighbours_that_fit_into_a_window_are_heard_together() -> None:
    spans = [Span(100, 400), Span(900, 2000), Span(2900, 3100), Span(3200, 3300), Span(9000, 9100)]
    assert in_windows(features(9200), spans) == (Span(100, 3100), Span(3200, 3300), Span(9000, 9100))
    assert in_windows(features(10), []) == ()


def test_speech_is_found_with_a_margin_and_with_the_pauses_in_it() -> None:
    found = voiced(sound((5.0, False), (3.0, True), (1.0, False), (2.0, True), (6.0, False), (4.0, True)))
    assert [(span.start, span.stop) for span in found] == [
        (pytest.approx(460, abs=20), pytest.approx(1140, abs=40)),
        (pytest.approx(1660, abs=20), 2100),
    ]


def test_neither_a_click_nor_silence_is_speech() -> None:
    assert voiced(sound((5.0, False), (0.05, True), (5.0, False))) == ()
    assert voiced(np.zeros(16_000, dtype=np.int16)) == voiced(np.zeros(0, dtype=np.int16)) == ()


def test_the_detector_can_be_interrupted() -> None:
    def check() -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        voiced(sound((1.0, True)), check)


@pytest.mark.parametrize(
    ("cutting", "count"), [(Cutting(), 1), (Cutting(in_windows=True), 3), (Cutting(speech_only=True), 2)]
)
def test_a_recording_has_the_parts_that_were_asked_for(cutting: Cutting, count: int) -> None:
    file = encoded(sound((20.0, True), (20.0, False), (25.0, True)), "flac", "flac")
    found = record(file, AudioLimits(), MelGeometry(80), cutting)
    assert len(found.spans) == count and found.duration == 65.0
    assert found.spans[0].start == 0 and found.spans[-1].stop == found.count == 6500


SPOKEN = sound((20.0, True), (1.0, False), (25.0, True), (1.0, False), (26.5, True))
WINDOWS = Cutting(in_windows=True)


def test_windows_follow_each_other_and_have_the_frames_of_the_whole_file() -> None:
    file = encoded(SPOKEN, "flac", "flac")
    whole = record(file, AudioLimits(), MelGeometry(80))
    found = list(parts(file, AudioLimits(), MelGeometry(80), WINDOWS))
    assert [part.start for part in found] == [0, *(part.start + part.count for part in found[:-1])]
    assert [part.end for part in found[:-1]] == [part.start / 100 for part in found[1:]]
    assert found[-1].end == pytest.approx(whole.duration, abs=1e-9) and found[-1].duration <= 30
    assert all(part.spans == (Span(0, part.count),) for part in found)
    # a tone from the first frame on: it is as loud everywhere
    assert np.abs(np.concatenate([part.frames for part in found], axis=1) - whole.frames).max() < 1e-6


def test_a_window_is_scaled_by_the_loudest_sound_up_to_its_end() -> None:
    quiet, loud = tone(31.0) // 100, tone(31.0)
    rising = list(parts(encoded(np.concatenate((quiet, loud))), AudioLimits(), MelGeometry(80), WINDOWS))
    falling = list(parts(encoded(np.concatenate((loud, quiet))), AudioLimits(), MelGeometry(80), WINDOWS))
    assert rising[0].frames.max() == pytest.approx(rising[-1].frames.max() - 1.0, abs=0.1)
    assert falling[-1].frames.max() - falling[-1].frames.min() < 1.1, "of 8 decades, 4 lie above all of it"


def test_a_window_is_there_before_later_ones_are_decoded() -> None:
    checked = 0

    def check() -> None:
        nonlocal checked
        checked += 1

    file = encoded(np.tile(SPOKEN, 2))  # two blocks are decoded ahead, of 8 seconds each
    counts = {}
    for cutting in (WINDOWS, Cutting()):
        found = parts(file, AudioLimits(), MelGeometry(80), cutting, check=check)
        checked = 0
        next(found)
        counts[cutting] = checked
        list(found)
    assert counts[WINDOWS] < counts[Cutting()] / 1.5


@pytest.mark.parametrize("cutting", [WINDOWS, Cutting()])
def test_a_recording_shorter_than_a_frame_is_one_part_without_frames(cutting: Cutting) -> None:
    (only,) = parts(encoded(tone(0.005)), AudioLimits(), MelGeometry(80), cutting)
    assert only.count == 0 and only.duration == 0.005
