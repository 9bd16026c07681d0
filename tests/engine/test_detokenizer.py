import re
from itertools import pairwise

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


class Chunks:
    """Ids are places in a list of bytes, which may begin and end within a character."""

    def __init__(self, chunks: list[bytes]) -> None:
        self._chunks = chunks

    def detokenize(self, ids: list[int]) -> str:
        return b"".join(self._chunks[place] for place in ids).decode(errors="replace")

    def piece(self, token: int) -> str | None:
        try:
            return self._chunks[token].decode()
        except UnicodeDecodeError:
            return None


def test_text_without_spaces_is_given_out_by_the_character() -> None:
    for text in "สวัสดี", "こんにちは", '{"a":[1,2]}', "aGVsbG8=", "a b\n":
        detokenizer = Detokenizer(CharacterTokenizer(), whole_words=False)
        assert [detokenizer.push(ord(letter)) for letter in text] == list(text)


def test_a_torn_character_is_held_back_without_whole_words_too() -> None:
    detokenizer = Detokenizer(Bytes(), whole_words=False)
    assert [detokenizer.push(byte) for byte in "aก🦜".encode()] == ["a", "", "", "ก", "", "", "", "🦜"]
    assert [detokenizer.push(byte) for byte in "ก".encode()[:2]] == ["", ""]
    assert detokenizer.flush() == "\N{REPLACEMENT CHARACTER}"


def test_an_incomplete_character_is_no_stop_string() -> None:
    for whole_words in (True, False):
        detokenizer = Detokenizer(Bytes(), ["\N{REPLACEMENT CHARACTER}"], whole_words=whole_words)
        given_out = "".join(detokenizer.push(byte) for byte in "ก ".encode())
        assert (given_out, detokenizer.stopped) == ("ก ", False)


LETTERS = st.text("ab.ก🦜é \n", max_size=12)


@st.composite
def chunked(draw: st.DrawFn) -> list[bytes]:
    """Bytes of a text, cut anywhere, with some that belong to no character."""
    packed = draw(LETTERS).encode() + draw(st.binary(max_size=3)) + draw(LETTERS).encode()
    cuts = sorted(draw(st.sets(st.integers(1, max(1, len(packed) - 1)))))
    return [packed[start:end] for start, end in pairwise([0, *cuts, len(packed)]) if start < end]


@settings(max_examples=500)
@given(chunked(), st.lists(st.text("ab.ก🦜", min_size=1, max_size=4), max_size=3))
def test_every_character_is_given_out_as_soon_as_no_stop_string_can_begin_there(
    chunks: list[bytes], stops: list[str]
) -> None:
    detokenizer = Detokenizer(Chunks(chunks), stops, whole_words=False)
    for count in range(1, len(chunks) + 1):
        detokenizer.push(count - 1)
        whole = b"".join(chunks[:count]).decode(errors="replace").rstrip("\N{REPLACEMENT CHARACTER}")
        cuts = [whole.index(stop) for stop in stops if stop in whole]
        if cuts:
            assert (detokenizer.text, detokenizer.stopped, detokenizer.flush()) == (whole[: min(cuts)], True, "")
            return
        beginnings = [stop[:size] for stop in stops for size in range(1, len(stop))]
        held = max((len(each) for each in beginnings if whole.endswith(each)), default=0)
        assert (detokenizer.text, detokenizer.stopped) == (whole[: len(whole) - held], False)
    detokenizer.flush()
    assert detokenizer.text == b"".join(chunks).decode(errors="replace")


def test_a_long_line_is_not_decoded_over_and_over() -> None:
    class Counting(CharacterTokenizer):
        longest = 0

        def piece(self, token: int) -> str | None:
            return None

        def detokenize(self, ids: list[int]) -> str:
            self.longest = max(self.longest, len(ids))
            return super().detokenize(ids)

    for whole_words in (True, False):
        tokenizer = Counting()
        detokenizer = Detokenizer(tokenizer, whole_words=whole_words)
        for letter in "some words " * 100:
            detokenizer.push(ord(letter))
        assert tokenizer.longest < 10
        assert detokenizer.text == "some words " * 100
