"""Named states of JSON texts: texts in equal states have equal masks, and common texts soon share theirs."""

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from stoop_worker.engine.grammars import states
from stoop_worker.engine.grammars.constraint import Constraint
from stoop_worker.engine.grammars.grammars import Grammars
from stoop_worker.engine.request import Finished, FinishReason, Grammar, Refused, Usage
from stoop_worker.models.loading.tokenizer import Tokenizer
from tests.support.tiny_decoder import QWEN_TEMPLATE, VOCABULARY, write_language

USAGE = Usage(1, 1, 0, 0.0, 0.0, 0.0)
TEXT: dict[str, Any] = {"type": "string"}


def record(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def at_most(length: int) -> dict[str, Any]:
    return {"type": "string", "maxLength": length}


SCHEMAS: tuple[dict[str, Any], ...] = (
    {"type": "object"},
    {"type": "string", "minLength": 2, "maxLength": 5},
    record(a=at_most(4), b={"type": "integer"}, c=TEXT),
    record(a={"enum": ["red", "green", "greenish"]}, b=at_most(3)),
    record(a={"type": "string", "pattern": "^[a-f]{2,5}x$"}, b=TEXT),
    record(a={"anyOf": [at_most(2), {"type": "null"}]}, b={"type": "array", "items": at_most(2), "maxItems": 3}),
    record(a={"anyOf": [at_most(2), at_most(5), {"type": "integer"}]}),
    {"$ref": "#/$defs/t", "$defs": {"t": record(v=at_most(3), t={"type": "array", "items": {"$ref": "#/$defs/t"}})}},
    {"type": "object", "additionalProperties": at_most(2)},
    {"type": "array", "prefixItems": [at_most(2), {"enum": ["q", "qq"]}], "items": at_most(3)},
    record(**{'"\n': at_most(2), "é": TEXT}),
    {"anyOf": [record(a=at_most(2), b={"type": "integer"}), record(a=at_most(4), b=TEXT)]},
    {"type": "object", "properties": {"a": {"type": "integer"}}},
    record(a={"enum": [["c", "d"], ["e", "f"], {"b": "cat"}, {"b": "c"}]}, b=TEXT),
)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder: Path = tmp_path_factory.mktemp("language")
    write_language(folder, QWEN_TEMPLATE)
    return Tokenizer.read(folder / "tokenizer.json")


@pytest.fixture(scope="module")
def grammars(tokenizer: Tokenizer) -> Iterator[Grammars]:
    yield Grammars(tokenizer.document, size=VOCABULARY, ends=[tokenizer.specials["<|im_end|>"]])


class Text:
    """A text of a schema, followed token by token."""

    def __init__(self, grammars: Grammars, tokenizer: Tokenizer, schema: dict[str, Any]) -> None:
        started = grammars.start(Grammar(schema=json.dumps(schema)))
        assert started is not None
        self.constraint: Constraint = started
        self._tokenizer = tokenizer

    def write(self, text: str) -> "Text":
        for character in text:  # as single tokens, so that all texts are cut alike
            for token in self._tokenizer.tokenize(character):
                assert self.constraint.take(token)
        return self

    @property
    def state(self) -> states.State | None:
        return self.constraint.state

    def mask(self) -> bytes:
        row = np.zeros(-(-VOCABULARY // 32), dtype=np.int32)
        self.constraint.matcher.unsafe_compute_mask_ptr(row.ctypes.data, row.nbytes)
        return row.tobytes()


def random_steps(text: Text, random: Random) -> Iterator[tuple[states.State | None, bool, bytes]]:
    """Write a text at random; yield each state, whether it is general, and its mask."""
    for _ in range(40):
        mask = text.mask()
        yield text.state, text.constraint.is_general, mask
        allowed = np.flatnonzero(np.unpackbits(np.frombuffer(mask, dtype=np.uint8), bitorder="little")).tolist()
        # the first of few ends strings and goes on alike in most texts; all of them occur
        token = allowed[0] if random.random() < (0.2 if len(allowed) > 8 else 0.9) else random.choice(allowed)
        if not text.constraint.take(token):
            return


@pytest.mark.parametrize("schema", SCHEMAS, ids=json.dumps)
def test_texts_in_the_same_state_have_the_same_mask(
    grammars: Grammars, tokenizer: Tokenizer, schema: dict[str, Any]
) -> None:
    random, known = Random(7), dict[states.State, bytes]()
    for _ in range(60):
        for state, is_general, mask in random_steps(Text(grammars, tokenizer, schema), random):
            if state in known:
                assert known[state] == mask
            elif state is not None and is_general:
                known[state] = mask


def test_characters_of_a_free_string_count_and_do_not_matter_after_its_end(
    grammars: Grammars, tokenizer: Tokenizer
) -> None:
    schema = record(a=at_most(9), b=TEXT)
    one, other, longer = (Text(grammars, tokenizer, schema).write('{"a":"' + text) for text in ("cat", "dog", "bird"))
    assert one.state is not None and one.state == other.state != longer.state
    ended = {text.write('","b":"').state for text in (one, other, longer)}
    assert len(ended) == 1 and None not in ended


def test_complete_values_and_the_space_around_them_do_not_matter(grammars: Grammars, tokenizer: Tokenizer) -> None:
    items = {"type": "array", "items": {"type": "integer"}}
    schema = record(a={"type": "integer"}, b=items, c={"enum": ["red", "green"]}, d=record(e=TEXT), f=TEXT)
    texts = (
        '{"a":1,"b":[],"c":"red","d":{"e":"x"},"f":"',
        '{"a": 22,"b": [3, 44, 5],"c": "green","d": {\n\t"e":""},\n  "f":"',
    )
    one, other = (Text(grammars, tokenizer, schema).write(text) for text in texts)
    assert one.state is not None and one.state == other.state


def test_numbers_of_items_matter_only_up_to_their_limit(grammars: Grammars, tokenizer: Tokenizer) -> None:
    schema = record(a={"type": "array", "items": {"type": "integer"}, "minItems": 2})
    ended = [
        Text(grammars, tokenizer, schema).write('{"a":[' + text).state for text in ("1,", "1,2,", "1,2,3,", "1,2,3,4,")
    ]
    assert len(set(ended)) == 3 and ended[2] == ended[3]


def test_a_string_without_a_bound_has_one_state(grammars: Grammars, tokenizer: Tokenizer) -> None:
    text = Text(grammars, tokenizer, record(a=TEXT)).write('{"a":"x')
    first = text.state
    assert first is not None and text.write("yz").state == first


def test_characters_count_after_letters_of_other_languages_too(grammars: Grammars, tokenizer: Tokenizer) -> None:
    """Each letter is several tokens."""
    schema = record(a=at_most(4), b=TEXT)
    text, plain = Text(grammars, tokenizer, schema), Text(grammars, tokenizer, schema)
    assert text.write('{"a":"é').state == plain.write('{"a":"e').state is not None
    assert text.write("漢x").state == plain.write("ab").state is not None
    assert text.write('","b":"').state == plain.write('","b":"').state is not None


def test_parts_of_a_character_make_states_of_their_own(grammars: Grammars, tokenizer: Tokenizer) -> None:
    schema = record(a=at_most(4))
    first, second, *_ = tokenizer.tokenize("漢")
    text, other = (Text(grammars, tokenizer, schema).write('{"a":"') for _ in range(2))
    seen = {text.state}
    for token in (first, second):
        assert text.constraint.take(token) and other.constraint.take(token)
        assert text.state is not None and text.state == other.state and text.state not in seen
        seen.add(text.state)


def test_an_escape_has_no_name_and_its_quote_does_not_end_the_string(grammars: Grammars, tokenizer: Tokenizer) -> None:
    schema = record(a=TEXT, b=TEXT)
    text = Text(grammars, tokenizer, schema).write('{"a":"x\\')
    assert text.state is None and text.write('"').state is None and text.write("y").state is None
    assert text.write('","b":"').state == Text(grammars, tokenizer, schema).write('{"a":"","b":"').state


def test_an_escaped_name_of_a_property_is_another_key(grammars: Grammars, tokenizer: Tokenizer) -> None:
    """For llguidance it is not the property, so its value may be anything."""
    schema = {"title": "escaped", "type": "object", "properties": {"a": {"type": "integer"}}}
    plain, escaped = (Text(grammars, tokenizer, schema).write(text) for text in ('{"a":', r'{"\u0061":'))
    assert plain.state is not None and escaped.state is not None
    assert plain.mask() != escaped.mask() and plain.state != escaped.state


def test_a_key_with_a_wrong_escape_is_refused_like_any_forbidden_text(grammars: Grammars, tokenizer: Tokenizer) -> None:
    text = Text(grammars, tokenizer, {"type": "object", "title": "wrong escape"}).write('{"a\\')
    for character in 'x"':
        text.constraint.take(tokenizer.tokenize(character)[0])
    assert text.state is None
    assert isinstance(text.constraint.ending(Finished("1", FinishReason.LENGTH, USAGE)), Refused)


@pytest.mark.parametrize(
    "schema",
    [
        record(a={"enum": ["cat", "dog"]}, b=TEXT),
        record(a={"type": "string", "pattern": "cat|dog"}, b=TEXT),
        record(a={"anyOf": [{"const": "cat"}, at_most(9)]}, b=TEXT),
        record(a={"type": "array", "items": {"enum": ["cat", "dog"]}}, b=TEXT),
        record(a={"$ref": "#/$defs/pet"}, b=TEXT) | {"$defs": {"pet": {"enum": ["cat", "dog"]}}},
    ],
    ids=json.dumps,
)
def test_characters_that_decide_how_a_string_goes_on_make_states_of_their_own(
    grammars: Grammars, tokenizer: Tokenizer, schema: dict[str, Any]
) -> None:
    start = '{"a":["' if "array" in json.dumps(schema) else '{"a":"'
    one, other = (Text(grammars, tokenizer, schema).write(start + text) for text in ("ca", "do"))
    assert one.state is not None and one.state != other.state


@pytest.mark.parametrize(
    "schema",
    [
        {"anyOf": [record(a=at_most(3), b={"type": "integer"}), record(a=at_most(6), b=TEXT)]},
        {"allOf": [record(a=TEXT)]},
        {"type": "object", "patternProperties": {"^x": TEXT}},
        {"type": "object", "additionalProperties": {"enum": ["cat", "dog"]}},
        record(a={"enum": [{"b": "cat"}, {"b": "c"}]}),
        record(a={"enum": [["c", "d"], ["e", "f"], "g"]}),
        record(a={"const": {"b": ["cat", 1]}}),
    ],
    ids=json.dumps,
)
def test_a_schema_in_which_a_string_may_decide_what_follows_it_names_no_states(
    grammars: Grammars, tokenizer: Tokenizer, schema: dict[str, Any]
) -> None:
    assert Text(grammars, tokenizer, schema).write("{").state is None


def test_a_schema_with_very_many_different_texts_names_only_the_first_states(
    grammars: Grammars, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(states, "_MOST_NODES", 20)
    schema = record(first=TEXT, second=TEXT, third=TEXT)
    text = Text(grammars, tokenizer, schema).write('{"first":"a",')
    assert text.state is not None
    assert text.write('"second":"b"').state is None


@pytest.mark.parametrize(("start", "part"), [("", "["), ("", '{"a":'), ("{", '"a":1,')])
def test_texts_with_very_many_open_parts_and_keys_name_only_their_first_states(
    grammars: Grammars, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch, start: str, part: str
) -> None:
    """Each state keeps all of them, so the states of such texts would take much memory."""
    monkeypatch.setattr(states, "_MOST_NODES", 10_000)
    text = Text(grammars, tokenizer, {"title": f"many {part}", "type": ["array", "object"]}).write(start)
    for number in range(100):
        text.write(part.replace("a", f"{number}"))
    assert text.state is not None
    for number in range(100, 300):
        text.write(part.replace("a", f"{number}"))
    assert text.state is None


def test_a_forbidden_token_refuses_a_text_in_states_that_others_have_been_in(
    grammars: Grammars, tokenizer: Tokenizer
) -> None:
    schema = record(a={"type": "string", "minLength": 3}, b=TEXT)
    Text(grammars, tokenizer, schema).write('{"a":"cat","b":"')
    text, finished = Text(grammars, tokenizer, schema).write('{"a":"c'), Finished("1", FinishReason.LENGTH, USAGE)
    assert text.constraint.ending(finished) is finished
    for character in '","b':  # the string is too short to end here
        text.constraint.take(tokenizer.tokenize(character)[0])
    assert isinstance(text.constraint.ending(finished), Refused)


def test_a_regular_expression_names_no_states(grammars: Grammars) -> None:
    started = grammars.start(Grammar(regex="[a-z]+"))
    assert started is not None and started.state is None and not started.is_general
