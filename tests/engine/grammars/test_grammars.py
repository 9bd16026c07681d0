"""Grammars compiled for a vocabulary of bytes: the texts they allow, the refused ones, and the bounds on strangers'
work.
"""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stoop_worker.engine.grammars import trial
from stoop_worker.engine.grammars.constraint import Constraint
from stoop_worker.engine.grammars.grammars import Grammars
from stoop_worker.engine.grammars.masks import Masks
from stoop_worker.engine.request import Finished, FinishReason, Grammar, Refused, RequestInvalid, Usage
from stoop_worker.models.loading.tokenizer import Tokenizer
from tests.support.tiny_decoder import QWEN_TEMPLATE, VOCABULARY, write_language

USAGE = Usage(1, 1, 0, 0.0, 0.0, 0.0)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder: Path = tmp_path_factory.mktemp("language")
    write_language(folder, QWEN_TEMPLATE)
    return Tokenizer.read(folder / "tokenizer.json")


@pytest.fixture(scope="module")
def ends(tokenizer: Tokenizer) -> list[int]:
    return [tokenizer.specials["<|im_end|>"], tokenizer.specials["<|endoftext|>"]]


@pytest.fixture(scope="module")
def grammars(tokenizer: Tokenizer, ends: list[int]) -> Iterator[Grammars]:
    yield Grammars(tokenizer.document, size=VOCABULARY, ends=ends)


def json_schema(schema: dict[str, Any]) -> Grammar:
    return Grammar(schema=json.dumps(schema))


def started(grammars: Grammars, grammar: Grammar) -> Constraint:
    constraint = grammars.start(grammar)
    assert constraint is not None
    return constraint


def allowed(*constraints: Constraint, masks: Masks | None = None) -> list[set[int]]:
    masks_NW = np.zeros((len(constraints), -(-VOCABULARY // 32)), dtype=np.int32)
    (masks or Masks()).fill(constraints, masks_NW)
    bits = np.unpackbits(masks_NW.view(np.uint8), axis=1, bitorder="little")
    return [set(np.flatnonzero(row).tolist()) for row in bits]


def refusal(grammars: Grammars, grammar: Grammar) -> str:
    with pytest.raises(RequestInvalid) as caught:
        grammars.start(grammar)
    return str(caught.value)


def test_an_expression_allows_the_next_characters_and_the_ends_only_where_it_is_complete(
    grammars: Grammars, tokenizer: Tokenizer, ends: list[int]
) -> None:
    text = started(grammars, Grammar(regex="[ab]c?"))
    letters = {letter: tokenizer.tokenize(letter)[0] for letter in "abc"}
    assert allowed(text) == [{letters["a"], letters["b"]}]
    assert text.take(letters["a"])
    assert allowed(text) == [{letters["c"], *ends}]
    assert not text.take(letters["c"])  # nothing can follow


def test_masks_of_several_texts_are_those_of_each_alone(grammars: Grammars) -> None:
    texts = [started(grammars, Grammar(regex=letter + "x*")) for letter in "abcdefgh" * 2]
    alone, masks = [allowed(text)[0] for text in texts], Masks()
    for count in range(400):  # in all of its ways, for few texts and for many
        several = slice(5 if count % 2 else None)
        assert allowed(*texts[several], masks=masks) == alone[several]


def test_strings_of_every_length_end_at_their_limit(grammars: Grammars, tokenizer: Tokenizer) -> None:
    letter, quote = (tokenizer.tokenize(each)[0] for each in 'a"')
    for most in (1, 2, 5, 7, 12):
        text = started(grammars, json_schema({"type": "string", "maxLength": most}))
        assert text.take(quote)
        for _ in range(most):
            assert letter in allowed(text)[0]
            assert text.take(letter)
        assert allowed(text) == [{quote}]


def test_texts_of_one_grammar_do_not_follow_each_other(grammars: Grammars, tokenizer: Tokenizer) -> None:
    first, second = (started(grammars, Grammar(regex="ab")) for _ in range(2))
    first.take(tokenizer.tokenize("a")[0])
    assert allowed(second) == [{tokenizer.tokenize("a")[0]}]


def test_json_never_has_control_tokens_nor_space_without_end(grammars: Grammars, tokenizer: Tokenizer) -> None:
    text = started(grammars, json_schema({"type": "object"}))
    assert not allowed(text)[0] & set(tokenizer.specials.values())
    text.take(tokenizer.tokenize("{")[0])
    space = tokenizer.tokenize(" ")[0]
    assert text.take(space)
    assert space not in allowed(text)[0]


def test_a_token_that_the_grammar_forbids_ends_the_text_in_a_refusal(grammars: Grammars, tokenizer: Tokenizer) -> None:
    text = started(grammars, Grammar(regex="secret"))
    finished = Finished("1", FinishReason.STOP, USAGE)
    assert text.ending(finished) is finished
    assert not text.take(tokenizer.tokenize("x")[0])
    ended = text.ending(finished)
    assert isinstance(ended, Refused) and ended.id == "1" and "secret" not in ended.message


@pytest.mark.parametrize(
    ("grammar", "reason"),
    [
        (Grammar(regex="[a"), "unclosed"),
        (Grammar(regex="(?=a)b"), "look-around"),
        (Grammar(regex=r"[^\s\S]"), "no text matches"),
        (Grammar(schema="{"), "EOF"),
        (json_schema({"type": "thing"}), "Invalid type"),
        (json_schema({"if": {}, "then": {}}), "Unimplemented"),
        (json_schema({"type": "object", "properties": {"a": False}, "required": ["a"]}), "unsatisfiable"),
        (json_schema({"$ref": "http://localhost/schema.json"}), "does not fetch"),
        (json_schema({"$ref": "file:///etc/passwd"}), "does not fetch"),
        (Grammar(regex="a" * (1 << 17)), "longer than 65536"),
    ],
)
def test_a_grammar_that_does_not_compile_is_refused_with_its_reason(
    grammars: Grammars, grammar: Grammar, reason: str
) -> None:
    assert reason in refusal(grammars, grammar)
    assert reason in refusal(grammars, grammar)  # kept, and the same


DEEP = {f"d{link}": {"type": "array", "items": {"$ref": f"#/$defs/d{link + 1}"}} for link in range(1000)}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "integer", "multipleOf": 99999999, "minimum": 0, "maximum": 10**18},  # hours of work
        {"$ref": "#/$defs/d0", "$defs": {**DEEP, "d1000": {"type": "string"}}},  # exhausts the stack
    ],
    ids=["endless", "deep"],
)
def test_a_schema_that_would_stop_the_worker_is_refused_and_the_next_one_compiles(
    grammars: Grammars, schema: dict[str, Any]
) -> None:
    assert "too much work to compile, or is nested too deeply" in refusal(grammars, json_schema(schema))
    assert grammars.start(Grammar(regex=f"after {len(schema)}")) is not None


def test_expressions_that_unfold_without_end_stop_at_their_bound(grammars: Grammars, tokenizer: Tokenizer) -> None:
    """They compile, because they unfold as the text goes on; then the text ends with a refusal, and nothing else."""
    letter = tokenizer.tokenize("a")[0]
    text = started(grammars, Grammar(regex="(a|b)*a(a|b){30}"))
    for _ in range(40):
        assert letter in allowed(text)[0]
        assert text.take(letter)


def test_the_vocabulary_is_read_once_with_the_first_grammar(tokenizer: Tokenizer, ends: list[int]) -> None:
    reads: list[int] = []

    def document() -> str:
        reads.append(1)
        return tokenizer.document()

    grammars = Grammars(document, size=VOCABULARY, ends=ends)
    assert grammars.knows(None) and grammars.start(None) is None
    assert not grammars.knows(Grammar(regex="ab")) and not reads
    with ThreadPoolExecutor(2) as threads:
        assert all(threads.map(grammars.start, [Grammar(regex="ab"), Grammar(regex="cd")]))
    assert grammars.knows(Grammar(regex="ab")) and reads == [1]


def test_a_panic_of_the_library_refuses_grammars_alone() -> None:
    def document() -> str:
        raise BaseException("a panic")

    grammars = Grammars(document, size=1, ends=[0])
    assert "a panic" in refusal(grammars, Grammar(regex="a"))


def test_a_new_grammar_does_not_wait_for_a_hostile_one(tokenizer: Tokenizer, ends: list[int]) -> None:
    grammars = Grammars(tokenizer.document, size=VOCABULARY, ends=ends)
    grammars.start(Grammar(regex="first"))
    busy = grammars._trials.get()  # taken by the compilation of a hostile grammar
    assert grammars.start(Grammar(regex="second")) is not None
    grammars._trials.put(busy)


def test_the_grammars_used_last_are_kept_whether_they_compile_or_not(tokenizer: Tokenizer, ends: list[int]) -> None:
    grammars = Grammars(tokenizer.document, size=VOCABULARY, ends=ends)
    good, bad = Grammar(regex="good"), Grammar(regex="[bad")
    for number in range(70):
        grammars.start(good)
        refusal(grammars, bad)
        grammars.start(Grammar(regex=f"good {number}"))
        refusal(grammars, Grammar(regex=f"[bad {number}"))
    assert grammars.knows(good) and grammars.knows(bad)
    assert not grammars.knows(Grammar(regex="good 0")) and not grammars.knows(Grammar(regex="[bad 0"))


def test_a_tokenizer_of_another_kind_refuses_grammars_alone() -> None:
    words = {"model": {"type": "WordLevel", "vocab": {"a": 0, "[UNK]": 1}, "unk_token": "[UNK]"}, "added_tokens": []}
    others = Grammars(lambda: json.dumps(words), size=2, ends=[1])
    assert others.start(None) is None
    assert "tokenizer" in refusal(others, Grammar(regex="a"))


def test_a_process_that_does_not_start_fails_its_request_alone(
    tokenizer: Tokenizer, ends: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Grammars(tokenizer.document, size=VOCABULARY, ends=ends)
    with monkeypatch.context() as broken:
        broken.setattr(trial, "_PROGRAM", ("/nowhere/python",))
        assert "does not start" in refusal(held, Grammar(regex="ab"))
    assert held.start(Grammar(regex="ab")) is not None
