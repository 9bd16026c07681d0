"""The chat skill without a model: the pieces in which it gives out its text."""

from collections.abc import Sequence

from stoop_worker.engine.request import Chat, Message, Request, Sampling, TextDelta
from stoop_worker.engine.skill import HeadValues
from stoop_worker.models.decoder.skill import ChatSkill
from stoop_worker.models.loading.tokenizer import Tokenizer


class Utf8(Tokenizer):
    """Ids are UTF-8 bytes."""

    def __init__(self) -> None:
        pass

    def detokenize(self, ids: Sequence[int]) -> str:
        return bytes(ids).decode(errors="replace")

    def piece(self, token: int) -> str | None:
        return chr(token) if token < 128 else None


def pieces(text: str, *stops: str) -> list[str]:
    request = Request("1", Chat((Message("user", ("hello",)),)), (), Sampling(stop=stops))
    skill = ChatSkill(request, ends=(256,), tokenizer=Utf8())
    outputs = [each for byte in text.encode() for each in skill.advance(HeadValues(byte)).outputs]
    return [output.text for output in outputs if isinstance(output, TextDelta)]


def test_text_without_spaces_streams_by_the_character() -> None:
    assert pieces("ไทย") == ["ไ", "ท", "ย"]
    assert pieces('{"a":1}') == list('{"a":1}')


def test_only_the_beginning_of_a_stop_string_is_held_back() -> None:
    assert pieces("ab##c", "###") == ["a", "b", "##c"]
