"""The words of ids, and the bounds on their times."""

import pytest

from stoop_worker.engine.window import Segment, Word
from stoop_worker.models.whisper.alignment import Alignment
from stoop_worker.models.whisper.family import WhisperFamily
from stoop_worker.models.whisper.words import Pieces, split, timed_words, words_of_segments


def texts(family: WhisperFamily, text: str, language: str) -> list[str]:
    tokenizer = family._model.tokenizer
    pieces = split(tokenizer.tokenize(text), language, tokenizer)
    assert [token for piece in pieces for token in piece.ids] == tokenizer.tokenize(text)
    return [piece.text for piece in pieces]


def test_words_begin_at_spaces_and_at_punctuation(family: WhisperFamily) -> None:
    assert texts(family, " the cat, naïve.", "en") == [" the", " cat", ",", " naïve", "."]


def test_languages_without_spaces_have_a_word_for_each_character(family: WhisperFamily) -> None:
    assert texts(family, "日本語", "ja") == ["日", "本", "語"]
    assert texts(family, "日本語", "en") == ["日本語"]


def test_a_character_that_stays_torn_is_kept(family: WhisperFamily) -> None:
    tokenizer = family._model.tokenizer
    torn = tokenizer.tokenize("日")[:-1]
    pieces = split([*tokenizer.tokenize(" the"), *torn], "en", tokenizer)
    assert [token for piece in pieces for token in piece.ids] == [*tokenizer.tokenize(" the"), *torn]
    assert split([], "en", tokenizer) == []


def test_a_word_lasts_from_its_first_id_to_the_one_after_it() -> None:
    pieces = [Pieces(" one", (1, 2)), Pieces(" two", (3,))]
    words = timed_words(pieces, Alignment(times=(0.5, 0.7, 1.0, 1.4), probabilities=(0.2, 0.4, 0.9)))
    assert [(word.word, word.start, word.end) for word in words] == [(" one", 0.5, 1.0), (" two", 1.0, 1.4)]
    assert [word.probability for word in words] == pytest.approx([0.3, 0.9])


def placed(*words: tuple[str, float, float], segment: tuple[float, float] = (0.0, 10.0)) -> tuple[Segment, list[Word]]:
    pieces = [Pieces(text, (number,)) for number, (text, _, _) in enumerate(words)]
    timed = [Word(text, start, end, 1.0) for text, start, end in words]
    whole = Segment(*segment, "".join(text for text, _, _ in words), tuple(range(len(words))))
    [(moved, found)] = words_of_segments((whole,), pieces, timed, text_below=100)
    return moved, list(found)


def test_punctuation_joins_its_word(family: WhisperFamily) -> None:
    _, found = placed((" (", 0, 0.1), ("cat", 0.1, 0.5), (")", 0.5, 0.6), (",", 0.6, 0.6), (" ok", 0.7, 1.0))
    assert [word.word for word in found] == [" (cat),", " ok"]
    assert (found[0].start, found[0].end) == (0.1, 0.5)


def test_a_segment_ends_with_its_last_word_unless_that_is_far_too_long() -> None:
    segment, found = placed((" a", 0.0, 0.4), (" b", 0.4, 0.8), segment=(0.0, 1.0))
    assert (segment.start, segment.end) == (0.0, 0.8)
    segment, found = placed((" a", 0.0, 0.4), (" b", 0.4, 9.0), (" c", 9.0, 9.4), segment=(0.0, 5.0))
    assert segment.end == 9.4
    segment, found = placed((" a", 0.0, 0.4), (" b", 0.4, 9.0), segment=(0.0, 1.5))
    assert segment.end == found[-1].end == 1.5


def test_silence_after_a_sentence_does_not_belong_to_its_end() -> None:
    _, found = placed((" a", 0.0, 0.4), (".", 0.4, 8.0), (" b", 8.0, 8.4))
    assert [(word.word, word.end) for word in found] == [(" a.", 0.4), (" b", 8.4)]
    _, found = placed((" a", 0.0, 0.4), (".", 0.4, 0.6), (" b", 0.6, 9.0), (" c", 9.0, 9.4))
    assert [(word.word, word.start) for word in found] == [(" a.", 0.0), (" b", 8.2), (" c", 9.0)]


def test_a_first_word_leaves_out_the_pause_before_it() -> None:
    segment, found = placed((" a", 0.0, 6.0), (" b", 6.0, 6.4), (" c", 6.4, 6.8), segment=(5.0, 7.0))
    assert found[0].start == segment.start == 5.2
