"""Captured prefills against those that are not, with work that is kept and called again in place of CUDA graphs.

The attention of prefills is the kernel's in Triton's interpreter: it alone follows the layout's tensors.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import torch

from stoop_worker.engine.config import EngineConfig
from stoop_worker.engine.device import runner
from stoop_worker.engine.device.prefill_shapes import PrefillShape, prefill_shapes
from stoop_worker.engine.engine import Engine
from stoop_worker.engine.request import Caption, Detect, Finished, Point, Query, Request, Sampling, SpatialRef, Task
from stoop_worker.images import Crops
from stoop_worker.kernels.backend import has_triton
from stoop_worker.models.moondream import text as paged_text
from stoop_worker.models.moondream.family import MoondreamFamily
from tests.engine.kept_work import KeptWork, attention
from tests.engine.micro import MICRO, crops_of, drain, ending, media_of, micro_moondream, small_engine

interpreted = pytest.mark.skipif(torch.cuda.is_available() or not has_triton(), reason="needs Triton's interpreter")

FULL_SIZE = prefill_shapes(EngineConfig(), width=730)
FEW_REFS: tuple[SpatialRef, ...] = ((0.25, 0.5), (0.1, 0.2, 0.7, 0.9))


@dataclass
class Pair:
    """An engine that captures, the prefills that it replays, and an engine that does not capture."""

    captured: Engine
    graphs: KeptWork
    plain: Engine

    def check(self, requests: list[Request]) -> None:
        """Let both answer, and compare."""
        ours, theirs = drain(self.captured, requests), drain(self.plain, requests)
        for request in requests:
            found, expected = ending(ours, request.id), ending(theirs, request.id)
            assert isinstance(found, Finished) and isinstance(expected, Finished)
            assert (found.text, found.reasoning, found.reason) == (expected.text, expected.reasoning, expected.reason)
            assert (found.grounding, found.points, found.boxes) == (expected.grounding, expected.points, expected.boxes)
            assert found.usage.cached_tokens == expected.usage.cached_tokens

    @property
    def shapes(self) -> list[PrefillShape]:
        """The prefills that were replayed."""
        return [key for key in self.graphs.replayed if isinstance(key, PrefillShape)]


@pytest.fixture(scope="module")
def warm() -> Iterator[Pair]:
    config = {"token_budget": 160, "max_batch": 6}
    plain = small_engine(micro_moondream(dtype=torch.float32), **config)
    graphs = KeptWork()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "_can_capture", lambda model: True)
        patch.setattr(runner, "Graphs", lambda: graphs)
        # a model of its own, because merging changes the layout of its weights
        model = MoondreamFamily(micro_moondream.__wrapped__(dtype=torch.float32), fused=True)
        captured = Engine(model, EngineConfig(page_size=4, lookahead=True, **config))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paged_text, "paged_attention", attention)
        captured.warm_up()
        yield Pair(captured, graphs, plain)


@pytest.fixture
def pair(warm: Pair) -> Pair:
    """Return engines that may know images of earlier tests, but have replayed nothing yet."""
    warm.graphs.replayed.clear()
    return warm


def images(shape: PrefillShape, width: int = MICRO.text.prefix_attn) -> int:
    return shape.given // width


def ask(number: int, task: Task, image: Crops | None) -> Request:
    return Request(
        str(number), task, media_of(image), Sampling(temperature=0.8, max_tokens=3, max_objects=2, seed=number)
    )


@interpreted
def test_one_and_several_images_answer_as_uncaptured(pair: Pair) -> None:
    tasks = [Query("How many are there?"), Caption("short"), Detect("circle"), Point("circle"), Query("Why is it so?")]
    for count in (1, 2, 4):
        pair.graphs.replayed.clear()
        pair.check([ask(i, tasks[(i + count) % 5], crops_of(10 * count + i, 8, 8)) for i in range(count)])
        assert [images(shape) for shape in pair.shapes] == [count]


@interpreted
def test_text_and_images_in_the_cache_run_with_others(pair: Pair) -> None:
    requests = [
        ask(0, Query("What colour is the red circle?"), crops_of(0, 20, 20)),
        ask(1, Query("Why is it so?"), None),
        # these wait for the first one's image, and then compute their prompts alone
        ask(2, Caption("normal"), crops_of(0, 20, 20)),
        ask(3, Query("Why is it so?"), crops_of(0, 20, 20)),
        ask(4, Detect("red circle"), crops_of(1, 8, 8)),
        ask(5, Query("How many?", reasoning=True), None),
    ]
    pair.check(requests)
    assert {images(shape) for shape in pair.shapes} == {0, 2}
    # again, all from the cache: some compute one position
    pair.graphs.replayed.clear()
    pair.check(requests)
    assert {images(shape) for shape in pair.shapes} == {0}


@interpreted
def test_coordinates_and_sizes_are_fed_or_go_uncaptured(pair: Pair) -> None:
    pair.check([ask(i, Query("Why is it so?", spatial_refs=FEW_REFS), crops_of(50 + i)) for i in range(2)])
    assert [images(shape) for shape in pair.shapes] == [2]
    pair.graphs.replayed.clear()
    pair.check([ask(7, Query("Why?", spatial_refs=((0.5, 0.5),) * 9), crops_of(7))])
    assert not pair.shapes


def test_the_usual_steps_are_captured_with_little_padding() -> None:
    for count in range(1, 9):
        for prompt in (8, 15, 24, 31):
            needed = count * (730 + prompt)
            shape = next(s for s in FULL_SIZE if images(s, 730) == count and s.positions >= needed)
            assert shape.positions - needed < 128 and shape.sequences > count
    # prompts after images in the cache
    assert any(shape.given == 0 and shape.positions >= 64 * 16 and shape.sequences == 64 for shape in FULL_SIZE)


def test_few_shapes_are_captured_and_none_is_a_decode() -> None:
    assert len(FULL_SIZE) < 40
    for config in (EngineConfig(), EngineConfig(max_batch=1), EngineConfig(max_batch=512, token_budget=600)):
        shapes = prefill_shapes(config, width=730)
        assert {shape.given for shape in shapes} >= {0, 730}
        assert all(1 <= shape.sequences < shape.positions for shape in shapes)
        assert all(shape.sequences <= config.max_batch for shape in shapes)


def test_a_step_has_no_more_images_than_its_budgets_allow() -> None:
    assert {shape.given for shape in prefill_shapes(EngineConfig(encode_budget=2), width=730)} == {0, 730, 2 * 730}
    assert max(shape.given for shape in prefill_shapes(EngineConfig(token_budget=2000), width=730)) == 2 * 730
    tight = EngineConfig(token_budget=100)
    assert max(shape.positions for shape in prefill_shapes(tight, width=MICRO.text.prefix_attn)) <= 128
