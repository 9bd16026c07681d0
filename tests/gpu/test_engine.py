"""The engine on a CUDA device."""

from functools import lru_cache

import numpy as np
import pytest
import torch

from stoop_worker.engine.config import EngineConfig, KVMemory
from stoop_worker.engine.engine import Engine
from stoop_worker.engine.request import Caption, Detect, Finished, Output, Point, Query, Request, Sampling, Task
from stoop_worker.images import Crops, Image, cut
from stoop_worker.models.moondream.family import MoondreamFamily
from tests.engine.micro import drain, ending, media_of
from tests.support.tiny_model import tiny_moondream

pytestmark = pytest.mark.gpu

TASKS: list[Task] = [
    Query("What colour is the circle?"),
    Query("How many?", reasoning=True, spatial_refs=((0.25, 0.5), (0.1, 0.2, 0.7, 0.9))),
    Caption("normal"),
    Detect("red circle"),
    Point("blue star"),
]


@lru_cache
def crops(number: int, height: int, width: int) -> Crops:
    pixels = np.random.default_rng(number).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return cut(Image.of(pixels), tiny_moondream().config.vision.geometry)


def check_same_answer(found: Output, expected: Output) -> None:
    assert isinstance(found, Finished) and isinstance(expected, Finished)
    assert (found.text, found.reasoning, found.reason) == (expected.text, expected.reasoning, expected.reason)
    assert (found.points, found.grounding) == (expected.points, expected.grounding)
    assert len(found.boxes) == len(expected.boxes)
    for box, other in zip(found.boxes, expected.boxes, strict=True):
        # sizes are powers of two, and the last bit of a power differs between devices
        assert (box.x_min, box.y_max) == pytest.approx((other.x_min, other.y_max), abs=1e-6)


def requests(count: int, temperature: float) -> list[Request]:
    """Return a mixture: every skill, images of one crop and of several, some of them twice, and text alone."""
    images = [None, crops(0, 300, 300), crops(1, 600, 850), crops(2, 500, 400)]
    mixture = []
    for index in range(count):
        task, image = TASKS[index % len(TASKS)], images[index % len(images)]
        if image is None and not isinstance(task, Query):
            image = images[1]
        if image is None:
            task = Query("What is a circle?", reasoning=bool(index % 8))
        sampling = Sampling(temperature=temperature, top_p=0.9, max_tokens=12, max_objects=3, seed=index)
        mixture.append(Request(str(index), task, media_of(image), sampling))
    return mixture


def run(
    dtype: torch.dtype, device: str, asked: list[Request], **changes: int
) -> tuple[Engine, dict[str, list[Output]]]:
    engine = Engine(
        MoondreamFamily(tiny_moondream(dtype, device=device)), EngineConfig(max_batch=16, token_budget=2048, **changes)
    )
    return engine, drain(engine, asked)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_mixed_requests_all_end_and_leave_the_pool_whole(dtype: torch.dtype) -> None:
    asked = requests(64, temperature=0.7)
    engine, outputs = run(dtype, "cuda", asked)
    assert all(isinstance(ending(outputs, request.id), Finished) for request in asked)
    stats = engine.stats
    assert (stats.waiting, stats.running, stats.pages_used) == (0, 0, 0)
    assert stats.totals.images_encoded == 3


def test_float32_answers_as_on_the_cpu() -> None:
    asked = requests(20, temperature=0.0)
    (_, ours), (_, theirs) = run(torch.float32, "cuda", asked), run(torch.float32, "cpu", asked)
    for request in asked:
        check_same_answer(ending(ours, request.id), ending(theirs, request.id))


def test_preemption_on_the_device_changes_no_answer() -> None:
    # long answers about one image, whose pages are shared: there is room to start them, but not to end them
    samplings = [Sampling(temperature=2.0, top_p=1.0, max_tokens=60, seed=seed) for seed in range(12)]
    asked = [Request(str(s.seed), Query("What?", reasoning=True), (crops(0, 300, 300),), s) for s in samplings]
    needed = tiny_moondream().config.text.max_context // 16 + 1
    tight, ours = run(torch.float32, "cuda", asked, pages=needed)
    _, theirs = run(torch.float32, "cuda", asked)
    assert tight.stats.totals.preemptions > 0
    for request in asked:
        one, other = ending(ours, request.id), ending(theirs, request.id)
        assert isinstance(one, Finished) and isinstance(other, Finished)
        assert (one.text, one.reasoning, one.points) == (other.text, other.reasoning, other.points)


def test_pages_are_sized_from_free_memory() -> None:
    model = MoondreamFamily(tiny_moondream(torch.float32, device="cuda"))
    memory = KVMemory.of(EngineConfig(), model.spec, device=model.device, dtype=model.dtype)
    assert memory.pages >= 8 * model.spec.max_context // 16
