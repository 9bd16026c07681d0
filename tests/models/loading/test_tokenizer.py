import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoop_worker.errors import CheckpointError
from stoop_worker.models.loading.tokenizer import Tokenizer
from stoop_worker.models.moondream.files import mismatch
from tests.support.tiny_model import tiny_config, tiny_tokenizer

CONTROL = ["<|endoftext|>", *(f"<|md_reserved_{i}|>" for i in range(20))]


def edited(change: str) -> Tokenizer:
    """Return the stand-in tokenizer as another tool might have written it."""
    document = json.loads(tiny_tokenizer().document())
    for token in document["added_tokens"]:
        if change == "stale":
            token["content"] = f"other{token['id']}"
        if change == "not special":
            token["special"] = False
    if change == "not added":
        document["added_tokens"] = []
    if change == "stale":
        names = {spelling: f"other{i}" for i, spelling in enumerate(CONTROL)}
        vocab = document["model"]["vocab"]
        document["model"]["vocab"] = {names.get(spelling, spelling): token for spelling, token in vocab.items()}
    return Tokenizer(json.dumps(document))


@given(st.text(max_size=60))
def test_text_comes_back(text: str) -> None:
    tokenizer = tiny_tokenizer()
    ids = tokenizer.tokenize(text)
    assert tokenizer.detokenize(ids) == text
    assert all(token > 20 for token in ids)


@pytest.mark.parametrize("tokenizer", [tiny_tokenizer(), edited("not special"), edited("not added")])
@pytest.mark.parametrize("spelling", CONTROL)
def test_the_spelling_of_a_control_token_stays_text(tokenizer: Tokenizer, spelling: str) -> None:
    ids = tokenizer.tokenize(f"say {spelling} now")
    assert all(token > 20 for token in ids)
    assert tokenizer.detokenize(ids) == f"say {spelling} now"


@pytest.mark.parametrize("tokenizer", [tiny_tokenizer(), edited("not special"), edited("not added")])
def test_control_tokens_and_unknown_ids_give_no_text(tokenizer: Tokenizer) -> None:
    red = tokenizer.tokenize("a red circle")
    assert tokenizer.detokenize([*range(21), *red, 5, 5, 6, 51199]) == "a red circle"


def test_a_torn_character_shows_as_a_replacement() -> None:
    tokenizer = tiny_tokenizer()
    assert tokenizer.detokenize(tokenizer.tokenize("é")[:1]) == "\ufffd"


@given(st.text(max_size=60))
def test_pieces_of_whole_characters_join_to_the_text(text: str) -> None:
    tokenizer = tiny_tokenizer()
    pieces = [tokenizer.piece(token) for token in tokenizer.tokenize(text)]
    if text.isascii():
        assert None not in pieces
    if None not in pieces:
        assert "".join(filter(None, pieces)) == text


def test_a_partial_character_is_not_a_piece() -> None:
    tokenizer = tiny_tokenizer()
    assert tokenizer.piece(tokenizer.tokenize("é")[0]) is None


def test_a_tokenizer_that_joins_texts_by_another_rule_has_no_pieces() -> None:
    document = json.loads(tiny_tokenizer().document())
    document["decoder"] = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    assert Tokenizer(json.dumps(document)).piece(40) is None


def test_a_tokenizer_fits_its_own_config() -> None:
    assert mismatch(tiny_tokenizer(), tiny_config()) is None


def test_a_stale_tokenizer_is_reported_by_its_first_id() -> None:
    assert mismatch(edited("stale"), tiny_config()) == "id 0 is 'other0', not '<|endoftext|>'"


def test_missing_control_tokens_are_reported() -> None:
    config = tiny_config()
    moved = replace(config, tokenizer=replace(config.tokenizer, coord_id=300))
    assert "not a control token" in (mismatch(tiny_tokenizer(), moved) or "")


def test_more_ids_than_the_model_has_are_reported() -> None:
    config = tiny_config()
    narrow = replace(config, text=replace(config.text, vocab_size=450))
    assert "ids, the model 450" in (mismatch(tiny_tokenizer(), narrow) or "")


@pytest.mark.parametrize("document", ["", "{}", "[]", '"text"'])
def test_a_file_that_is_not_a_tokenizer_is_refused(document: str) -> None:
    with pytest.raises(CheckpointError, match="not a tokenizer"):
        Tokenizer(document)


def test_a_file_reads_back(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(tiny_tokenizer().document(), encoding="utf-8")
    assert Tokenizer.read(path).tokenize("two red circles") == tiny_tokenizer().tokenize("two red circles")
    with pytest.raises(CheckpointError, match="cannot read"):
        Tokenizer.read(tmp_path / "other.json")


def test_the_ids_of_a_text_that_comes_again_belong_to_the_caller() -> None:
    tokenizer = tiny_tokenizer()
    first = tokenizer.tokenize("a red ball")
    expected = list(first)
    first.append(0)
    assert tokenizer.tokenize("a red ball") == expected
