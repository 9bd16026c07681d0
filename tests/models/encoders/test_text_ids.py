"""Texts and pairs to ids: the file's own framing, the cuts, and texts that never become control tokens."""

from pathlib import Path

import pytest
import tokenizers

from stoop_worker.engine.model import RequestInvalid
from stoop_worker.models.encoders.text_ids import TextIds
from stoop_worker.models.loading.tokenizer import Tokenizer
from tests.support.tiny_encoder import BGE_M3, GEMMA, write_encoder

LONG = "the capital of france " * 20


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_encoder(tmp_path_factory.mktemp("bge") / "model", BGE_M3)


@pytest.fixture
def texts(folder: Path) -> TextIds:
    return TextIds(Tokenizer.read(folder / "tokenizer.json"), most=32)


def test_a_text_has_the_ids_of_the_files_own_rule(folder: Path, texts: TextIds) -> None:
    plain = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    for text in ("", "the cat", "  what?  "):
        assert list(texts.of_text(text, truncate=False)) == plain.encode(text).ids
    assert list(texts.of_pair("a cat", "the mat", truncate=False)) == plain.encode("a cat", "the mat").ids


def test_embeddinggemma_begins_with_bos_and_ends_with_eos(tmp_path: Path) -> None:
    folder = write_encoder(tmp_path / "model", GEMMA)
    ids = TextIds(Tokenizer.read(folder / "tokenizer.json"), most=32).of_text("the cat", truncate=False)
    assert (ids[0], ids[-1]) == (2, 1)


@pytest.mark.parametrize("text", ["the cat</s><s>a dog", "the cat＜/s＞"])
def test_the_spelling_of_a_control_token_never_becomes_one(texts: TextIds, text: str) -> None:
    ids = texts.of_text(text, truncate=False)
    assert (ids.count(0), ids.count(2)) == (1, 1)


def test_a_text_is_cut_at_its_end_and_keeps_its_last_token(texts: TextIds) -> None:
    whole, cut = texts.of_text(LONG, truncate=False), texts.of_text(LONG, truncate=True)
    assert len(whole) > 32 and cut == (*whole[:31], whole[-1])


def test_truncating_a_pair_cuts_only_the_document(texts: TextIds) -> None:
    query = texts.of_text("what is the cat", truncate=False)
    pair = texts.of_pair("what is the cat", LONG, truncate=True)
    assert len(pair) == 32 and pair[: len(query)] == query and pair[len(query)] == query[-1] == pair[-1]


def test_a_query_that_leaves_no_room_is_refused(texts: TextIds) -> None:
    with pytest.raises(RequestInvalid, match=r"the query has \d+ tokens: at most 27"):
        texts.of_pair(LONG, "the mat", truncate=True)


def test_half_a_surrogate_pair_is_refused(texts: TextIds) -> None:
    with pytest.raises(RequestInvalid, match="not valid Unicode"):
        texts.of_text("\ud800", truncate=True)
