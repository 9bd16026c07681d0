"""Tokens for JSON alone: a tokenizer of program text and JSON, in which tokens have line breaks, quotes and escapes."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import tokenizers
from llguidance import LLMatcher, LLTokenizer

from stoop_worker.engine.grammars.grammars import Grammars
from stoop_worker.engine.grammars.json_tokens import without_other_tokens
from stoop_worker.engine.request import Grammar

SIZE, END = 640, 0
VALUE = {"name": 'a "b"\n\\ é☃', "list": [1, -2.5e3, True, None, {"": ""}], "code": "if (x) { f(); }\t"}
LINE_END = ";Ċ"  # a semicolon and a line break, as byte-level tokenizers spell them
LINES = [
    ";\n" * 9,
    "if (x) {\n\tf();\n}\n",
    'print("a",\n  "b\\n");\r\n',
    "é☃;\n",
    json.dumps(VALUE, indent=1),
    json.dumps(VALUE),
]


@pytest.fixture(scope="module")
def document() -> str:
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=SIZE, special_tokens=["<end>"], initial_alphabet=alphabet, show_progress=False, max_token_length=6
    )
    tokenizer.train_from_iterator(LINES, trainer)
    written: str = tokenizer.to_str()
    return written


def ids(document: str) -> dict[str, int]:
    found: dict[str, int] = json.loads(document)["model"]["vocab"]
    return found


def tokens_of(document: str, text: str) -> list[int]:
    found: list[int] = tokenizers.Tokenizer.from_str(document).encode(text).ids
    return found


def masks(document: str, schema: dict[str, Any], written: Sequence[int]) -> list[bytes]:
    """Return the mask before each token of a text, and the one after the last."""
    tokens = LLTokenizer(document, n_vocab=SIZE, eos_token=[END], slices=[])
    matcher = LLMatcher(tokens, LLMatcher.grammar_from_json_schema(json.dumps(schema)), log_level=0)
    found = []
    for token in written:
        found.append(bytes(matcher.compute_bitmask()))
        assert matcher.consume_token(token)
    return [*found, bytes(matcher.compute_bitmask())]


def test_tokens_that_no_json_contains_lose_their_spelling_and_the_others_keep_theirs(document: str) -> None:
    before, after = ids(document), ids(without_other_tokens(document))
    assert sorted(before.values()) == sorted(after.values())
    lost = before.keys() - after.keys()
    assert LINE_END in lost and all(len(each) > 1 for each in lost)
    assert not [each for each in lost if each.isalnum()]


@pytest.mark.parametrize("indent", [None, 1])
def test_every_mask_of_a_json_text_is_the_same(document: str, indent: int | None) -> None:
    text, other = json.dumps(VALUE, indent=indent, ensure_ascii=False), without_other_tokens(document)
    written = tokens_of(document, text)
    assert written == tokens_of(other, text) and len(written) > 20
    strings = {"type": "object", "additionalProperties": {"type": ["string", "array"], "maxLength": 40}}
    for schema in ({}, strings):
        assert masks(document, schema, written) == masks(other, schema, written)


def test_an_expression_may_use_the_tokens_that_no_json_contains(document: str) -> None:
    constraint = Grammars(lambda: document, size=SIZE, ends=[END]).start(Grammar(regex=";\n"))
    assert constraint is not None
    row = np.zeros((1, SIZE // 32), dtype=np.int32)
    constraint.matcher.unsafe_compute_mask_ptr(row.ctypes.data, row.nbytes)
    bits = np.unpackbits(row.view(np.uint8), bitorder="little")
    assert bits[ids(document)[LINE_END]]


def test_a_tokenizer_that_does_not_work_on_bytes_stays_as_it_is() -> None:
    words = json.dumps({"model": {"type": "WordLevel", "vocab": {");\n": 0}, "unk_token": ");\n"}, "decoder": None})
    assert without_other_tokens(words) == words
