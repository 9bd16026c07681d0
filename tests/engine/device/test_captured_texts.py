"""Small batches of texts as kept work, against the same texts that are not padded."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from stoop_worker.engine.device import text_runner
from stoop_worker.engine.device.captured_texts import shapes
from stoop_worker.engine.device.text_runner import TextRunner
from stoop_worker.engine.encoder import Encoder, Text
from stoop_worker.engine.request import VectorKind
from stoop_worker.models.families import load_model
from stoop_worker.models.loading.options import LoadOptions
from tests.engine.kept_work import KeptWork
from tests.support.tiny_encoder import BGE_M3, GEMMA, RERANKER, write_encoder

LENGTHS = [(3,), (32,), (3, 7, 7, 20), (40, 3, 90), (5,) * 30]


@pytest.fixture(params=[BGE_M3, RERANKER, GEMMA], ids=["bge-m3", "reranker", "embeddinggemma"], scope="module")
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Encoder:
    config: dict[str, Any] = request.param
    folder = write_encoder(tmp_path_factory.mktemp("model"), config)
    loaded = load_model(folder, LoadOptions(torch.device("cpu"), torch.float32))
    assert isinstance(loaded, Encoder)
    return loaded


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> KeptWork:
    graphs = KeptWork()
    monkeypatch.setattr(text_runner, "Graphs", lambda: graphs)
    monkeypatch.setattr(text_runner, "_can_capture", lambda model: True)
    # two sizes are enough, and the largest take long to run on a CPU
    usual: Callable[[int], Any] = shapes
    monkeypatch.setattr("stoop_worker.engine.device.captured_texts.shapes", lambda longest: usual(longest)[:4])
    return graphs


def texts_of(lengths: tuple[int, ...], *kinds: VectorKind) -> list[Text]:
    random = np.random.default_rng(sum(lengths))
    wanted = kinds or (VectorKind.DENSE,)
    return [Text(tuple(random.integers(4, 140, length).tolist()), wanted) for length in lengths]


def runner_of(model: Encoder) -> TextRunner:
    return TextRunner(model, on_progress=lambda: None)


def test_captured_batches_have_the_values_of_others(model: Encoder, kept: KeptWork) -> None:
    plain, captured = runner_of(model), runner_of(model)
    captured.warm_up()
    for lengths in LENGTHS:  # each leaves its ids behind for the next
        texts = texts_of(lengths)
        for found, expected in zip(captured.start(texts).values(), plain.start(texts).values(), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert [shape.tokens for shape in kept.replayed] == [32, 32, 64, 256, 256]  # type: ignore[attr-defined]


def test_texts_that_fit_no_captured_batch_run_all_the_same(model: Encoder, kept: KeptWork) -> None:
    captured = runner_of(model)
    captured.warm_up()
    long = texts_of((100,) * 3)
    assert [values.shape for values in captured.start(long).values()] == [
        values.shape for values in runner_of(model).start(long).values()
    ]
    assert not kept.replayed


def test_other_kinds_of_vectors_are_not_captured(model: Encoder, kept: KeptWork) -> None:
    if model.name != "tiny" or model.spec.width != BGE_M3["hidden_size"]:
        pytest.skip("this model has one kind")
    captured = runner_of(model)
    captured.warm_up()
    texts = texts_of((4, 6), VectorKind.SPARSE)
    assert [len(values) for values in captured.start(texts).values()] == [4, 6]
    assert not kept.replayed


@pytest.mark.parametrize("longest", [100, 8192])
def test_a_larger_batch_has_room_for_all_that_fits_a_smaller_one(longest: int) -> None:
    found = shapes(longest)
    assert all(each.longest <= longest for each in found)
    assert all(more >= most for each, larger in pairwise(found) for most, more in zip(each, larger, strict=True))
