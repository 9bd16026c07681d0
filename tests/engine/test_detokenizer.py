import re

from hypothesis import given, settings
from hypothesis import strategies as st

from stoop_worker.engine.detokenizer import Detokenizer
from tests.engine.micro import micro_tokenizer


class CharacterTokenizer:
    """Ids are characters."""

    def detokenize(self, ids: list[int]) -> str:
        return "".join(map(chr, ids))

    def piece(self, token: int) -> str | None:
        return chr(token)


class Bytes:
    """Ids are UTF-8 bytes."""

    def detokenize(self, ids: list[int]) -> str:
        return bytes(ids).decode(errors="replace")

    def piece(self, token: int) -> str | None:
        return chr(token) if token < 128 else None


def pieces(text: str) -> list[str]:
    detokenizer = Detokenizer(CharacterTokenizer())
    given_out = [detokenizer.push(ord(letter)) for letter in text]
    return [piece for piece in [*given_out, detokenizer.flush()] if piece]


def test_words_are_given_out_with_the_space_after_them() -> None:
    assert pieces("a red dog") == ["a ", "red ", "dog"]


def test_a_newline_gives_out_the_line() -> None:
    assert pieces("one two\nthree") == ["one ", "two\n", "three"]


def test_chinese_needs_no_spaces() -> None:
    assert pieces("红狗 ok") == ["红", "狗", " ", "ok"]


def test_a_torn_character_is_held_back() -> None:
    detokenizer = Detokenizer(Bytes())
    given_out = [detokenizer.push(byte) for byte in "a é b".encode()]
    assert given_out == ["", "a ", "", "", "é ", ""]
    assert detokenizer.flush() == "b"
    assert detokenizer.text == "a é b"


def test_flushing_twice_gives_nothing_more() -> None:
    detokenizer = Detokenizer(CharacterTokenizer())
    detokenizer.push(ord("a"))
    assert (detokenizer.flush(), detokenizer.flush()) == ("a", "")


def plain(ids: list[int], tokenizer: CharacterTokenizer | Bytes) -> list[str]:
    """The rule as it is written, keeping every id of the line."""
    kept: list[int] = []
    count, given_out = 0, []
    for token in ids:
        kept.append(token)
        text = tokenizer.detokenize(kept)
        if text.endswith("\n"):
            given_out.append(text[count:])
            kept, count = [], 0
        elif text and re.fullmatch("[㐀-䶿一-鿿\U0002f800-\U0002fa1f]", text[-1]):
            given_out.append(text[count:])
            count = len(text)
        elif (space := text.rfind(" ", count)) >= 0:
            given_out.append(text[count : space + 1])
            count = space + 1
        else:
            given_out.append("")
    return [*given_out, tokenizer.detokenize(kept)[count:]]


@settings(max_examples=300)
@given(st.lists(st.one_of(st.sampled_from(list("a b\né红狗".encode())), st.integers(0, 255)), max_size=40))
def test_pieces_are_those_of_the_plain_rule(ids: list[int]) -> None:
    detokenizer = Detokenizer(Bytes())
    assert [*(detokenizer.push(token) for token in ids), detokenizer.flush()] == plain(ids, Bytes())


@settings(max_examples=200)
@given(st.lists(st.integers(0, 511), max_size=60))
def test_pieces_add_up_to_the_text_of_all_ids(ids: list[int]) -> None:
    detokenizer = Detokenizer(micro_tokenizer())
    given_out = "".join(detokenizer.push(token) for token in ids) + detokenizer.flush()
    assert given_out == detokenizer.text == micro_tokenizer().detokenize(ids)


def test_a_long_line_is_not_decoded_over_and_over() -> None:
    class Counting(CharacterTokenizer):
        longest = 0

        def piece(self, token: int) -> str | None:
            return None

        def detokenize(self, ids: list[int]) -> str:
            self.longest = max(self.longest, len(ids))
            return super().detokenize(ids)

    tokenizer = Counting()
    detokenizer = Detokenizer(tokenizer)
    for letter in "some words " * 100:
        detokenizer.push(ord(letter))
    assert tokenizer.longest < 10
    assert detokenizer.text == "some words " * 100
