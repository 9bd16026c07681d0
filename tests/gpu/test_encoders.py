"""Encoders on the device: small batches as graphs, and texts of many lengths in one launch of attention."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from stoop_worker.engine.device.text_runner import TextRunner
from stoop_worker.engine.encoder import Encoder, Text, Values
from stoop_worker.models.families import load_model
from stoop_worker.models.loading.options import LoadOptions
from tests.support.tiny_encoder import BGE_M3, GEMMA, RERANKER, write_encoder

LENGTHS = [(3,), (32,), (3, 7, 7, 20), (40, 3, 90), (5,) * 30, (17,) * 120, (100,) * 100]


def load(folder: Path, device: str, dtype: torch.dtype, *, fp8: bool = False) -> Encoder:
    loaded = load_model(folder, LoadOptions(torch.device(device), dtype, fp8_linears=fp8))
    assert isinstance(loaded, Encoder)
    return loaded


def texts_of(lengths: Sequence[int]) -> list[Text]:
    random = np.random.default_rng(len(lengths))
    return [Text(tuple(random.integers(4, 140, length).tolist())) for length in lengths]


def closeness(found: Sequence[Values], expected: Sequence[Values]) -> float:
    """The worst cosine of two vectors; of scores, one less their difference."""
    if len(found[0]) == 1:
        return 1 - float(np.abs(np.stack(found) - np.stack(expected)).max())
    pairs = zip(found, expected, strict=True)
    return min(float(one @ other / np.linalg.norm(one) / np.linalg.norm(other)) for one, other in pairs)


@pytest.mark.parametrize(
    ("config", "fp8"),
    [(BGE_M3, False), (BGE_M3, True), (RERANKER, False), (GEMMA, False)],
    ids=["bge-m3", "bge-m3 in float8", "reranker", "embeddinggemma"],
)
def test_captured_batches_and_others_agree_with_float32_on_a_cpu(
    config: dict[str, Any], fp8: bool, tmp_path: Path
) -> None:
    folder = write_encoder(tmp_path / "model", config)
    plain = TextRunner(load(folder, "cpu", torch.float32), on_progress=lambda: None)
    model = load(folder, "cuda", torch.bfloat16, fp8=fp8)
    captured, eager = (TextRunner(model, on_progress=lambda: None) for _ in range(2))
    captured.warm_up()
    for lengths in LENGTHS * 2:
        texts = texts_of(lengths)
        expected = plain.start(texts).values()
        assert closeness(captured.start(texts).values(), expected) > 0.95, lengths
        assert closeness(eager.start(texts).values(), expected) > 0.95, lengths


def test_batches_started_behind_each_other_keep_their_own_values(tmp_path: Path) -> None:
    model = load(write_encoder(tmp_path / "model", BGE_M3), "cuda", torch.bfloat16)
    runner = TextRunner(model, on_progress=lambda: None)
    runner.warm_up()
    batches = [texts_of(lengths) for lengths in (*LENGTHS, *LENGTHS)]
    alone = [np.stack(runner.start(texts).values()) for texts in batches]
    started = [runner.start(texts) for texts in batches]
    for found, expected in zip(started, alone, strict=True):
        np.testing.assert_array_equal(np.stack(found.values()), expected)
