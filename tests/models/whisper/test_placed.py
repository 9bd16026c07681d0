"""The words of a window's segments, with an alignment that the test gives."""

from collections.abc import Sequence

import pytest

from stoop_worker.engine.request import FinishReason, Request, Segment, Transcribe, Usage, Window
from stoop_worker.engine.skill import HeadValues
from stoop_worker.models.whisper.alignment import Alignment
from stoop_worker.models.whisper.family import WhisperFamily
from stoop_worker.models.whisper.skill import TranscribeSkill


def window_of(family: WhisperFamily, ids: Sequence[int], times: Sequence[float]) -> tuple[Window, list[int]]:
    """Return the window of these drawn ids, and the ids of text that were aligned to these times."""
    model, aligned = family._model, list[int]()

    def align(before: Sequence[int], text: Sequence[int]) -> Alignment:
        aligned.extend(text)
        return Alignment(times=tuple(times), probabilities=(1.0,) * len(text))

    task = Transcribe(language="en", words=True)
    skill = TranscribeSkill(Request("a", task), task, model.vocabulary, model.tokenizer, most=99, align=align)
    for token in (model.vocabulary.languages["en"], *ids, model.vocabulary.end):
        skill.advance(HeadValues(token, (-0.1, 0.0)))
    [finished] = skill.finish(FinishReason.STOP, Usage(0, 0, 0, 0.0, 0.0, 0.0))
    assert finished.window is not None
    return finished.window, aligned


def at(family: WhisperFamily, seconds: float) -> int:
    return family._model.vocabulary.first_stamp + round(seconds / 0.02)


@pytest.fixture(scope="module")
def words(family: WhisperFamily) -> list[list[int]]:
    return [family._model.tokenizer.tokenize(text) for text in (" the", " cat", " sat")]


def short(segments: Sequence[Segment]) -> list[tuple[float, float, str]]:
    return [(segment.start, segment.end, segment.text) for segment in segments]


def test_a_segment_without_length_gets_that_of_its_words(family: WhisperFamily, words: list[list[int]]) -> None:
    the, cat, sat = words
    ids = [at(family, 0), *the, at(family, 1), at(family, 1), *cat, at(family, 1), at(family, 1), *sat, at(family, 3)]
    count = len(the) + len(cat) + len(sat)
    times = [0.0] * len(the) + [0.9] * len(cat) + [1.5] * len(sat) + [2.0]
    window, aligned = window_of(family, ids, times)
    assert aligned == [*the, *cat, *sat] and len(times) == count + 1
    assert short(window.segments) == [(0.0, 0.9, " the"), (0.9, 1.5, " cat"), (1.5, 2.0, " sat")]
    assert [word.word for word in window.words] == [" the", " cat", " sat"]


def test_words_without_a_time_are_kept_where_their_segment_has_one(
    family: WhisperFamily, words: list[list[int]]
) -> None:
    the, cat, sat = words
    ids = [at(family, 0), *the, at(family, 1), at(family, 1), *cat, at(family, 2), at(family, 2), *sat, at(family, 2)]
    times = [0.0] * len(the) + [1.0] * len(cat) + [1.0] * len(sat) + [1.0]
    window, _ = window_of(family, ids, times)
    assert short(window.segments) == [(0.0, 1.0, " the"), (1.0, 1.0, " cat")]
    assert [word.word for word in window.words] == [" the", " cat"]
