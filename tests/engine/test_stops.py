from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoop_worker.engine.detokenizer import Detokenizer
from stoop_worker.engine.stops import StopStrings


class CharacterTokenizer:
    def detokenize(self, ids: Sequence[int]) -> str:
        return "".join(map(chr, ids))

    def piece(self, token: int) -> str | None:
        return chr(token)


def written(text: str, *stops: str) -> tuple[list[str], bool]:
    """Push a text letter by letter until it is stopped; return the released text, and whether it was stopped."""
    detokenizer = Detokenizer(CharacterTokenizer(), stops)
    pieces = []
    for letter in text:
        pieces.append(detokenizer.push(ord(letter)))
        if detokenizer.stopped:
            break
    pieces.append(detokenizer.flush())
    assert detokenizer.text == "".join(pieces)
    return [piece for piece in pieces if piece], detokenizer.stopped


@pytest.mark.parametrize(
    ("text", "stops", "left"),
    [
        ("one two three", ("two",), "one "),
        ("one\n\ntwo", ("\n\n",), "one"),
        ("one\n two", ("\n\n",), "one\n two"),
        ("User: hi", ("User:",), ""),
        ("aab", ("ab",), "a"),
        ("a b c", ("c", "b"), "a "),
        ("no stop here", ("###",), "no stop here"),
        ("ends in #", ("##",), "ends in #"),
    ],
)
def test_a_text_ends_before_the_first_stop_string(text: str, stops: tuple[str, ...], left: str) -> None:
    pieces, stopped = written(text, *stops)
    assert "".join(pieces) == left
    assert stopped == (left != text)


def test_a_stop_string_ends_a_word_that_is_not_complete() -> None:
    detokenizer = Detokenizer(CharacterTokenizer(), ("##",))
    assert [detokenizer.push(ord(letter)) for letter in "ab##"] == ["", "", "", "ab"]
    assert detokenizer.stopped


@given(st.text("ab \n", max_size=30), st.lists(st.text("ab \n", min_size=1, max_size=4), min_size=1, max_size=3))
def test_nothing_of_a_stop_string_is_given_out(text: str, stops: list[str]) -> None:
    cuts = [text.index(stop) for stop in stops if stop in text]
    # a string that is written out first may begin after a longer one that goes on
    ends = {min(text.index(stop) + len(stop) for stop in stops if stop in text)} if cuts else set()
    seen = text[: min(ends)] if ends else text
    expected = text[: min(seen.index(stop) for stop in stops if stop in seen)] if ends else text
    pieces, stopped = written(text, *stops)
    assert "".join(pieces) == expected
    assert stopped == bool(cuts)


def test_a_stop_string_may_continue_in_the_held_text() -> None:
    stops = StopStrings(("two",))
    assert stops.push("one ", "tw") == "one "
    assert stops.push("", "two") == ""
    assert stops.found
