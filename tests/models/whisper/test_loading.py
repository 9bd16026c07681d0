"""The required contents of a Whisper's files."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from stoop_worker.audio import MelGeometry
from stoop_worker.engine.config import EngineConfig
from stoop_worker.engine.request import Transcribe
from stoop_worker.errors import CheckpointError, ConfigError
from stoop_worker.models.families import load_model
from stoop_worker.models.loading.options import LoadOptions
from stoop_worker.models.whisper.family import WhisperFamily
from tests.support.tiny_whisper import TinyWhisper, write_whisper


def load(folder: Path, **options: Any) -> WhisperFamily:
    model = load_model(folder, LoadOptions(torch.device("cpu"), torch.float32, **options))
    assert isinstance(model, WhisperFamily)
    return model


def write(tmp_path: Path) -> TinyWhisper:
    return write_whisper(tmp_path / "whisper", max_source_positions=24)


def change(path: Path, **fields: Any) -> None:
    document = {**json.loads(path.read_text()), **fields}
    path.write_text(json.dumps({name: value for name, value in document.items() if value is not None}))


def test_a_model_lists_its_tasks_and_sizes(tmp_path: Path) -> None:
    spec = load(write(tmp_path).folder).spec
    assert (spec.tasks, spec.preparation) == ((Transcribe,), MelGeometry(80))
    assert spec.max_context == 32 + 448  # 24 states fill a page of 32 positions


def test_the_only_weights_may_be_a_pickle_without_the_tied_head_or_with_it(tmp_path: Path) -> None:
    folder = write(tmp_path).folder
    digest = load(folder).digest
    stored = folder / "model.safetensors"
    tensors = load_file(stored)
    stored.unlink()
    torch.save(
        {**tensors, "proj_out.weight": tensors["model.decoder.embed_tokens.weight"]}, folder / "pytorch_model.bin"
    )
    loaded = load(folder)
    assert torch.equal(loaded._model.weights.conv1.weight, tensors["model.encoder.conv1.weight"])
    assert loaded.digest != digest  # the sizes of the files are part of it


def split_tokenizer(folder: Path, *, times: bool) -> None:
    """Replace tokenizer.json by the files that older fine-tunes have, with the ids of timestamps or without."""
    document = json.loads((folder / "tokenizer.json").read_text())
    (folder / "tokenizer.json").unlink()
    model = document["model"]
    (folder / "vocab.json").write_text(json.dumps(model["vocab"]))
    (folder / "merges.txt").write_text("#version: 0.2\n" + "".join(" ".join(pair) + "\n" for pair in model["merges"]))
    added = {each["content"]: each["id"] for each in document["added_tokens"] if times or each["special"]}
    (folder / "added_tokens.json").write_text(json.dumps(added))


@pytest.mark.parametrize("times", [True, False])
def test_the_tokenizer_may_be_in_the_older_files(tmp_path: Path, times: bool) -> None:
    folder = write(tmp_path).folder
    wanted = load(folder)._model
    split_tokenizer(folder, times=times)
    found = load(folder)._model
    assert found.vocabulary == wanted.vocabulary
    text = " the cat, #version; naïve 日本 <|en|>"
    ids = found.tokenizer.tokenize(text)
    assert ids == wanted.tokenizer.tokenize(text)
    assert found.tokenizer.detokenize(ids) == text


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("vocab.json", None, "has no tokenizer.json and no vocab.json"),
        ("merges.txt", None, "has no tokenizer.json and no merges.txt"),
        ("merges.txt", "#version: 0.2\nno such\n", "do not fit each other"),
        ("added_tokens.json", '{"<|endoftext|>": 9000}', "after a gap"),
        ("added_tokens.json", "[1]", "must map spellings to ids"),
        ("vocab.json", "{", "cannot read"),
    ],
)
def test_older_files_that_do_not_fit_are_refused(tmp_path: Path, name: str, content: str | None, message: str) -> None:
    folder = write(tmp_path).folder
    split_tokenizer(folder, times=True)
    (folder / name).unlink() if content is None else (folder / name).write_text(content)
    with pytest.raises(CheckpointError, match=message):
        load(folder)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"d_model": None}, "d_model is None: expected a positive int"),
        ({"activation_function": "relu"}, "activation_function must be gelu"),
        ({"scale_embedding": True}, "scale_embedding is true"),
        ({"decoder_attention_heads": 5}, "d_model is 64, which the attention heads cannot share"),
        ({"encoder_ffn_dim": 97}, "its config says"),
        ({"decoder_layers": 4}, "lacks tensors"),
        ({"vocab_size": 1000}, "tokenizer.json has 1811 ids, the model 1000"),
    ],
)
def test_a_config_that_this_code_cannot_compute_is_refused(
    tmp_path: Path, fields: dict[str, Any], message: str
) -> None:
    folder = write(tmp_path).folder
    change(folder / "config.json", **fields)
    with pytest.raises(CheckpointError, match=message):
        load(folder)


def test_alignment_heads_must_be_heads_of_the_decoder(tmp_path: Path) -> None:
    folder = write(tmp_path).folder
    change(folder / "generation_config.json", alignment_heads=[[3, 0]])
    with pytest.raises(CheckpointError, match="alignment_heads must be pairs"):
        load(folder)
    change(folder / "generation_config.json", alignment_heads=None)
    assert load(folder)._model.generation.alignment_heads == ((1, 0), (1, 1), (2, 0), (2, 1))


def test_a_tokenizer_of_another_kind_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path).folder
    path = folder / "tokenizer.json"
    path.write_text(path.read_text().replace("<|startofprev|>", "<|somethingelse|>"))
    with pytest.raises(CheckpointError, match=r"lacks <\|startofprev\|>: it is not a Whisper's"):
        load(folder)


def test_without_a_generation_config_the_unsaid_symbols_are_those_of_the_tokenizer(tmp_path: Path) -> None:
    tiny = write(tmp_path)
    (tiny.folder / "generation_config.json").unlink()
    model = load(tiny.folder)._model
    spelled = {model.tokenizer.spelling(token) for token in model.vocabulary.suppressed}
    assert {"(", "[", "#", "<|startofprev|>", "<|nospeech|>"} <= spelled
    assert not {"a", ".", ",", "?", "<|endoftext|>", "<|notimestamps|>"} & spelled
    assert tiny.ids["<|endoftext|>"] in model.vocabulary.suppressed_first


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_context": 400}, "--max-context is 400: a window and its text take 480 positions"),
        ({"fp8_linears": True}, "--fp8-linears is for Moondream"),
        ({"adapters": Path("/adapters")}, "--adapters is for Moondream"),
    ],
)
def test_an_option_that_a_whisper_cannot_follow_is_refused(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    folder = write(tmp_path).folder
    with pytest.raises(ConfigError, match=message):
        load(folder, **options)


def test_pages_that_do_not_divide_a_window_are_refused_before_any_work(tmp_path: Path) -> None:
    family = load(write(tmp_path).folder)
    with pytest.raises(ConfigError, match="page_size is 48: make it divide the positions of a window, 32"):
        family.rehearsal(EngineConfig(page_size=48))
