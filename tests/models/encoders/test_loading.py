"""The required contents of an encoder's files, and the requests that it accepts."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from stoop_worker.engine.device.text_runner import TextRunner
from stoop_worker.engine.encoder import Encoder, Text
from stoop_worker.engine.model import RequestInvalid
from stoop_worker.engine.request import Embed, Request, Rerank, VectorKind
from stoop_worker.errors import CheckpointError, ConfigError
from stoop_worker.models.encoders.embedder import COLBERT_BYTES
from stoop_worker.models.families import load_model
from stoop_worker.models.loading.options import LoadOptions
from tests.support.tiny_encoder import BGE_M3, GEMMA, RERANKER, write_encoder


def load(folder: Path, dtype: torch.dtype = torch.float32, max_context: int = 4096) -> Encoder:
    model = load_model(folder, LoadOptions(torch.device("cpu"), dtype, max_context=max_context))
    assert isinstance(model, Encoder)
    return model


def change(folder: Path, **fields: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def test_each_model_lists_its_tasks_and_sizes(tmp_path: Path) -> None:
    found = {name: load(write_encoder(tmp_path / name, config)) for name, config in (
        ("bge", BGE_M3), ("reranker", RERANKER), ("gemma", GEMMA)
    )}  # fmt: skip
    assert {name: (model.spec.tasks, model.spec.width, model.spec.max_context) for name, model in found.items()} == {
        "bge": ((Embed,), 64, 128),
        "reranker": ((Rerank,), 1, 128),
        "gemma": ((Embed,), 48, 256),
    }
    assert len({model.digest for model in found.values()}) == 3
    assert load(tmp_path / "bge", max_context=50).spec.max_context == 50


@pytest.mark.parametrize(
    ("config", "fields", "message"),
    [
        (BGE_M3, {"hidden_act": "relu"}, "hidden_act is 'relu'"),
        (BGE_M3, {"layer_norm_eps": 1e-12}, "layer_norm_eps is 1e-12"),
        (BGE_M3, {"num_attention_heads": 5}, "5 heads cannot share 64"),
        (BGE_M3, {"hidden_size": 128}, "its config says"),
        (BGE_M3, {"architectures": ["XLMRobertaForMaskedLM"]}, "architectures is"),
        (RERANKER, {"id2label": {"0": "no", "1": "yes"}}, "with 2 labels"),
        (GEMMA, {"use_bidirectional_attention": False}, "use_bidirectional_attention is False"),
        (GEMMA, {"layer_types": ["full_attention"]}, "layer_types must name 7 layers"),
        (GEMMA, {"head_dim": None}, "head_dim is None: expected a positive int"),
    ],
)
def test_a_config_that_this_code_cannot_compute_is_refused(
    tmp_path: Path, config: dict[str, Any], fields: dict[str, Any], message: str
) -> None:
    folder = write_encoder(tmp_path / "model", config)
    change(folder, **fields)
    with pytest.raises(CheckpointError, match=message):
        load(folder)


@pytest.mark.parametrize(("config", "other"), [(BGE_M3, "mean_tokens"), (GEMMA, "cls_token")])
def test_another_pooling_is_refused(tmp_path: Path, config: dict[str, Any], other: str) -> None:
    folder = write_encoder(tmp_path / "model", config)
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({f"pooling_mode_{other}": True}))
    with pytest.raises(CheckpointError, match="another pooling"):
        load(folder)


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    folder = write_encoder(tmp_path / "model", GEMMA)
    tensors = load_file(folder / "model.safetensors")
    del tensors["layers.3.self_attn.q_norm.weight"]
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"lacks tensors: layers\.3\.self_attn\.q_norm\.weight"):
        load(folder)


def test_a_dense_layer_with_an_activation_is_refused(tmp_path: Path) -> None:
    folder = write_encoder(tmp_path / "model", GEMMA)
    (folder / "2_Dense" / "config.json").write_text('{"activation_function": "torch.nn.modules.activation.Tanh"}')
    with pytest.raises(CheckpointError, match="activation_function is"):
        load(folder)


def test_embeddinggemma_is_not_run_in_float16(tmp_path: Path) -> None:
    folder = write_encoder(tmp_path / "model", GEMMA)
    with pytest.raises(ConfigError, match="overflows in float16"):
        load(folder, torch.float16)


def in_fp8(folder: Path) -> Encoder:
    model = load_model(folder, LoadOptions(torch.device("cpu"), torch.float32, fp8_linears=True))
    assert isinstance(model, Encoder)
    return model


@pytest.mark.parametrize("config", [BGE_M3, RERANKER], ids=["bge-m3", "reranker"])
def test_in_float8_values_differ_a_little(tmp_path: Path, config: dict[str, Any]) -> None:
    folder = write_encoder(tmp_path / "model", config)
    texts = [Text((0, *range(5, 5 + length), 2)) for length in (3, 60, 20)]
    exact, rounded = (
        np.stack(TextRunner(model, on_progress=lambda: None).start(texts).values())
        for model in (load(folder), in_fp8(folder))
    )
    assert np.isfinite(rounded).all() and not np.array_equal(exact, rounded)
    difference = np.linalg.norm(exact - rounded, axis=1)
    assert difference.max() < 0.2 * max(1.0, np.linalg.norm(exact, axis=1).max())


def test_float8_is_refused_where_sizes_or_the_family_do_not_allow_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--fp8-linears is for Moondream and XLM-RoBERTa"):
        in_fp8(write_encoder(tmp_path / "gemma", GEMMA))
    with pytest.raises(ConfigError, match="multiples of 16"):
        in_fp8(write_encoder(tmp_path / "bge", {**BGE_M3, "intermediate_size": 100}))


@pytest.mark.parametrize(
    ("config", "task", "message"),
    [
        (BGE_M3, Embed(()), "at least one"),
        (BGE_M3, Embed(("a",), dimensions=32), "have 64 dimensions: leave dimensions out"),
        (BGE_M3, Embed(("a",), prompt_name="query"), "this model has none"),
        (GEMMA, Embed(("a",), kinds=(VectorKind.SPARSE,)), "no sparse vectors: it has dense"),
        (GEMMA, Embed(("a",), dimensions=49), "from 1 to 48"),
        (GEMMA, Embed(("a",), prompt_name="poem"), "known are document, query"),
        (RERANKER, Rerank("a", ()), "at least one"),
    ],
)
def test_a_request_that_the_model_cannot_run_is_refused_with_its_tasks(
    tmp_path: Path, config: dict[str, Any], task: Embed | Rerank, message: str
) -> None:
    model = load(write_encoder(tmp_path / "model", config))
    with pytest.raises(RequestInvalid, match=message):
        model.prepare_texts(Request("a", task))


def test_without_the_files_of_its_heads_bge_m3_has_dense_vectors_alone(tmp_path: Path) -> None:
    folder = write_encoder(tmp_path / "model", BGE_M3)
    (folder / "colbert_linear.pt").unlink()
    task = Embed(("a",), kinds=(VectorKind.DENSE, VectorKind.SPARSE, VectorKind.COLBERT))
    with pytest.raises(RequestInvalid, match="no colbert vectors: it has dense, sparse"):
        load(folder).prepare_texts(Request("a", task))
    (folder / "sparse_linear.pt").unlink()
    with pytest.raises(RequestInvalid, match="no sparse vectors: it has dense"):
        load(folder).prepare_texts(Request("a", task))
    torch.save({"weight": torch.zeros(2, 64), "bias": torch.zeros(2)}, folder / "sparse_linear.pt")
    with pytest.raises(CheckpointError, match=r"weight has shape \(2, 64\)"):
        load(folder)


def test_colbert_vectors_of_too_many_tokens_are_refused(tmp_path: Path) -> None:
    model = load(write_encoder(tmp_path / "model", BGE_M3))
    most = COLBERT_BYTES // (4 * 64)
    texts = ("the cat sat on the mat " * 5,) * most
    with pytest.raises(RequestInvalid, match=f"at most {most} with colbert vectors; send fewer texts"):
        model.prepare_texts(Request("a", Embed(texts, kinds=(VectorKind.COLBERT,), truncate=True)))
    assert model.prepare_texts(Request("a", Embed(texts[:9], kinds=(VectorKind.COLBERT,), truncate=True)))
