"""Encoders against transformers, in float32: the same files, one text at a time there, packed here."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tokenizers
import torch
import transformers
from safetensors.torch import load_file
from torch.nn.functional import linear, normalize

from stoop_worker.engine.batch_engine import BatchEngine
from stoop_worker.engine.config import EngineConfig
from stoop_worker.engine.encoder import Encoder
from stoop_worker.engine.request import Embed, Finished, Request, Rerank, Task, VectorKind
from stoop_worker.models.families import load_model
from stoop_worker.models.loading.options import LoadOptions
from tests.support.tiny_encoder import BGE_M3, GEMMA, PROMPTS, RERANKER, write_encoder

CLOSE = 1 - 1e-6
TEXTS = (
    "a",
    "the cat sat on the mat",
    "what is the capital of france",
    "paris is the capital of france " * 2,
    "the cat sat on the dog",
)


def load(folder: Path) -> Encoder:
    model = load_model(folder, LoadOptions(torch.device("cpu"), torch.float32))
    assert isinstance(model, Encoder)
    return model


def run(model: Encoder, task: Task, **config: Any) -> Finished:
    engine = BatchEngine(model, EngineConfig(**config))
    engine.submit(Request("a", task))
    outputs = [output for _ in iter(lambda: engine.idle, True) for output in engine.step()]
    assert len(outputs) == 1 and isinstance(outputs[0], Finished), outputs
    return outputs[0]


def vectors(model: Encoder, texts: Sequence[str], **fields: Any) -> npt.NDArray[np.float32]:
    finished = run(model, Embed(tuple(texts), **fields))
    return np.stack([np.frombuffer(vector, dtype="<f4") for vector in finished.vectors])


def ids_of(folder: Path, *texts: str) -> torch.Tensor:
    """The ids by the file's own rule, as transformers gives them."""
    return torch.tensor([tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json")).encode(*texts).ids])


def weights_of(folder: Path) -> dict[str, torch.Tensor]:
    stored = folder / "pytorch_model.bin"
    return torch.load(stored, weights_only=True) if stored.exists() else load_file(folder / "model.safetensors")


def oracle(kind: Any, config: Any, folder: Path) -> Any:
    config._attn_implementation = "eager"
    model = kind(config).float().eval()
    missing = model.load_state_dict(weights_of(folder), strict=False).missing_keys
    assert not [name for name in missing if "position_ids" not in name]
    return model


@torch.inference_mode()
def test_bge_m3_gives_transformers_vectors(tmp_path: Path) -> None:
    folder = write_encoder(tmp_path / "model", BGE_M3)
    plain = oracle(transformers.XLMRobertaModel, transformers.XLMRobertaConfig(**BGE_M3), folder)
    expected = [normalize(plain(ids_of(folder, text)).last_hidden_state[0, 0], dim=0) for text in TEXTS]
    cosines = (vectors(load(folder), TEXTS) * torch.stack(expected).numpy()).sum(1)
    assert (cosines >= CLOSE).all()


ALL = (VectorKind.DENSE, VectorKind.SPARSE, VectorKind.COLBERT)


@torch.inference_mode()
def test_bge_m3_gives_weights_and_token_vectors_by_their_formula(tmp_path: Path) -> None:
    folder = write_encoder(tmp_path / "model", BGE_M3)
    plain = oracle(transformers.XLMRobertaModel, transformers.XLMRobertaConfig(**BGE_M3), folder)
    heads = {name: torch.load(folder / f"{name}_linear.pt", weights_only=True) for name in ("sparse", "colbert")}
    texts = (*TEXTS, "the cat ☃ the cat")
    found = run(load(folder), Embed(texts, kinds=ALL))
    assert len(found.vectors) == len(found.sparse) == len(found.colbert) == len(texts)
    for text, sparse, colbert in zip(texts, found.sparse, found.colbert, strict=True):
        ids = ids_of(folder, text)
        hidden = plain(ids).last_hidden_state[0]
        assert dict(zip(sparse.ids, sparse.weights, strict=True)) == pytest.approx(
            lexical_weights(ids[0].tolist(), hidden, heads["sparse"]), abs=1e-5
        )
        assert list(sparse.ids) == sorted(sparse.ids)
        expected = normalize(linear(hidden[1:], heads["colbert"]["weight"], heads["colbert"]["bias"]), dim=-1)
        values = np.frombuffer(colbert.values, "<f4").reshape(colbert.count, -1)
        assert values.shape == expected.shape
        assert ((values * expected.numpy()).sum(1) >= CLOSE).all()
    assert 3 in ids_of(folder, texts[-1]), "one text has an unknown token, which gets no weight"
    assert any(len(sparse.ids) > 1 for sparse in found.sparse)


def lexical_weights(ids: list[int], hidden: torch.Tensor, head: dict[str, torch.Tensor]) -> dict[int, float]:
    """The largest weight of each id by a plain loop, without <s>, <pad>, </s> and <unk>."""
    weights: dict[int, float] = {}
    for number, state in zip(ids, hidden, strict=True):
        weight = max(0.0, float(head["weight"][0] @ state + head["bias"][0]))
        if number not in (0, 1, 2, 3) and weight > weights.get(number, 0.0):
            weights[number] = weight
    return weights


def test_requests_for_several_kinds_share_a_step_and_keep_their_own(tmp_path: Path) -> None:
    model = load(write_encoder(tmp_path / "model", BGE_M3))
    engine = BatchEngine(model, EngineConfig())
    kinds = {"dense": ALL[:1], "sparse": ALL[1:2], "all": ALL}
    for name, wanted in kinds.items():
        engine.submit(Request(name, Embed(TEXTS, kinds=wanted)))
    outputs = {output.id: output for output in engine.step()}
    assert engine.idle and outputs.keys() == kinds.keys(), "one step runs all three"
    dense, sparse, everything = (outputs[name] for name in kinds)
    assert isinstance(dense, Finished) and isinstance(sparse, Finished) and isinstance(everything, Finished)
    assert not dense.sparse and not dense.colbert and not sparse.vectors and not sparse.colbert
    alone = vectors(model, TEXTS)
    for output in (dense, everything):
        found = np.stack([np.frombuffer(vector, "<f4") for vector in output.vectors])
        assert ((found * alone).sum(1) >= CLOSE).all()
    for one, other in zip(sparse.sparse, everything.sparse, strict=True):
        assert one.ids == other.ids
        assert one.weights == pytest.approx(other.weights, abs=1e-6)


@torch.inference_mode()
def test_the_reranker_gives_transformers_scores(tmp_path: Path) -> None:
    folder = write_encoder(tmp_path / "model", RERANKER)
    settings = transformers.XLMRobertaConfig(**RERANKER, num_labels=1)
    plain = oracle(transformers.XLMRobertaForSequenceClassification, settings, folder)
    expected = [plain(ids_of(folder, TEXTS[2], text)).logits.item() for text in TEXTS]
    found = run(load(folder), Rerank(TEXTS[2], TEXTS)).scores
    assert found == pytest.approx(expected, abs=1e-5)
    assert np.std(found) > 0.01


@torch.inference_mode()
@pytest.mark.parametrize("prompt", [None, "query", "document"])
def test_embeddinggemma_gives_transformers_vectors(tmp_path: Path, prompt: str | None) -> None:
    folder = write_encoder(tmp_path / "model", GEMMA)
    plain = oracle(transformers.Gemma3TextModel, transformers.Gemma3TextConfig(**GEMMA), folder)
    first, second = (load_file(folder / name / "model.safetensors")["linear.weight"] for name in ("2_Dense", "3_Dense"))
    expected = []
    texts = (*TEXTS, TEXTS[3] * 4)
    for text in texts:
        ids = ids_of(folder, PROMPTS.get(prompt or "", "") + text)
        mean = plain(ids).last_hidden_state[0].mean(0)
        expected.append(normalize(second @ first @ mean, dim=0))
    assert ids.shape[1] > 40, "the last text is longer than the window"
    cosines = (vectors(load(folder), texts, prompt_name=prompt) * torch.stack(expected).numpy()).sum(1)
    assert (cosines >= CLOSE).all()


def test_embeddinggemma_shortens_vectors_to_length_1(tmp_path: Path) -> None:
    model = load(write_encoder(tmp_path / "model", GEMMA))
    whole, short = vectors(model, TEXTS), vectors(model, TEXTS, dimensions=12)
    assert short.shape == (len(TEXTS), 12)
    assert np.allclose(short, whole[:, :12] / np.linalg.norm(whole[:, :12], axis=1, keepdims=True), atol=1e-6)


@pytest.mark.parametrize("config", [BGE_M3, GEMMA], ids=["bge-m3", "embeddinggemma"])
def test_a_text_among_others_has_the_vector_that_it_has_alone(tmp_path: Path, config: dict[str, Any]) -> None:
    model = load(write_encoder(tmp_path / "model", config))
    among = vectors(model, TEXTS)
    alone = np.concatenate([vectors(model, [text]) for text in TEXTS])
    assert ((among * alone).sum(1) >= CLOSE).all()


def test_newer_files_keep_the_thetas_elsewhere(tmp_path: Path) -> None:
    folder = write_encoder(tmp_path / "model", GEMMA)
    expected = vectors(load(folder), TEXTS)
    document = json.loads((folder / "config.json").read_text())
    thetas = {"full_attention": document.pop("rope_theta"), "sliding_attention": document.pop("rope_local_base_freq")}
    document["rope_parameters"] = {
        kind: {"rope_type": "default", "rope_theta": theta} for kind, theta in thetas.items()
    }
    (folder / "config.json").write_text(json.dumps(document))
    assert np.array_equal(vectors(load(folder), TEXTS), expected)
