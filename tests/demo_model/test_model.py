"""The checkpoint that comes with the project: it must see, not only run."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from benchmarks.accuracy.run import ask, draw_items, score
from stoop_worker.models.moondream.model import load
from stoop_worker.models.moondream.shapes import tensor_shapes


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """A model this small gains little from a second thread, and loses much where other tests want it too."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


MODEL = Path(__file__).parents[2] / "deploy" / "demo_model" / "model"


def test_the_demo_model_loads_is_trained_and_is_small() -> None:
    model = load(MODEL, device="cpu", dtype=torch.float32)
    assert (model.name, model.untrained) == ("demo", False)
    assert sum(torch.Size(shape).numel() for shape in tensor_shapes(model.config).values()) < 8_000_000
    assert (MODEL / "model.safetensors").stat().st_size < 16 << 20


def test_the_engine_answers_held_out_scenes_rightly() -> None:
    for many_crops in (False, True):
        items = draw_items(2, many_crops=many_crops)
        scores = score(items, ask(items, str(MODEL), engine=True))
        found = {name: share for name, share in scores.items() if "F1" in name}
        assert min(found.values()) > 0.9
        exact = [share for name, share in scores.items() if name.endswith("exact")]
        assert sum(exact) / len(exact) > 0.85


def test_right_answers_come_back_through_the_queue() -> None:
    items = draw_items(1, many_crops=False)
    scores = score(items, ask(items, str(MODEL), engine=False))
    exact = [share for name, share in scores.items() if name.endswith("exact")]
    assert sum(exact) / len(exact) > 0.8
    assert scores["detect F1 at IoU 0.5"] > 0.9
