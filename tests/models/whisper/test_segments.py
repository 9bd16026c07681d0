"""The cutting of a window's ids into segments."""

import pytest

from stoop_worker.models.whisper.family import WhisperFamily
from stoop_worker.models.whisper.segments import Cut, compression_ratio, cut, is_heard, text_of


@pytest.fixture
def words(family: WhisperFamily) -> list[int]:
    return family._model.tokenizer.tokenize(" the cat")


def at(family: WhisperFamily, seconds: float) -> int:
    return family._model.vocabulary.first_stamp + round(seconds * 50)


def cut_up(family: WhisperFamily, ids: list[int]) -> Cut:
    return cut(ids, family._model.vocabulary, family._model.tokenizer)


def times(found: Cut) -> list[tuple[float, float, str]]:
    return [(round(segment.start, 2), round(segment.end, 2), segment.text) for segment in found.segments]


def test_words_after_the_last_pair_of_timestamps_are_left_to_the_next_window(
    family: WhisperFamily, words: list[int]
) -> None:
    ids = [at(family, 0.5), *words, at(family, 4), at(family, 4.2), *words, at(family, 9), at(family, 9), *words]
    found = cut_up(family, ids)
    assert times(found) == [(0.5, 4.0, " the cat"), (4.2, 9.0, " the cat")]
    assert found.segments[0].tokens == (at(family, 0.5), *words, at(family, 4))
    assert (round(found.advance, 2), found.open_ended) == (9.0, True)


def test_a_single_timestamp_at_the_end_means_silence_after_it(family: WhisperFamily, words: list[int]) -> None:
    ids = [at(family, 0), *words, at(family, 2), at(family, 2), *words, at(family, 5)]
    found = cut_up(family, ids)
    assert times(found) == [(0.0, 2.0, " the cat"), (2.0, 5.0, " the cat")]
    assert (found.advance, found.open_ended) == (30.0, False)


@pytest.mark.parametrize(("last", "end"), [(7.5, 7.5), (0.0, 30.0), (None, 30.0)])
def test_without_a_pair_the_window_is_one_segment_up_to_its_last_timestamp(
    family: WhisperFamily, words: list[int], last: float | None, end: float
) -> None:
    ids = [at(family, 0), *words, *([] if last is None else [at(family, last)])]
    found = cut_up(family, ids)
    assert times(found) == [(0.0, end, " the cat")]
    assert found.advance == 30.0


def test_segments_without_words_or_without_length_are_not_heard(family: WhisperFamily, words: list[int]) -> None:
    spaces = family._model.tokenizer.tokenize(" ")
    ids = [at(family, 1), *words, at(family, 1), at(family, 1), *spaces, at(family, 3), at(family, 3), *words]
    found = cut_up(family, ids)
    assert len(found.segments) == 2 and not any(map(is_heard, found.segments))
    assert found.advance == 3.0
    assert not any(map(is_heard, cut_up(family, []).segments))
    assert is_heard(cut_up(family, [at(family, 1), *words, at(family, 2)]).segments[0])


def test_text_has_no_times_and_no_control_tokens(family: WhisperFamily, words: list[int]) -> None:
    model = family._model
    ids = [at(family, 0), *words, model.vocabulary.end, at(family, 2)]
    assert text_of(ids, model.vocabulary, model.tokenizer) == " the cat"


def test_repetition_has_a_high_compression_ratio() -> None:
    assert compression_ratio("no " * 200) > 2.4 > compression_ratio("The quick brown fox jumps over the lazy dog.") > 0
    assert compression_ratio("") == 0
