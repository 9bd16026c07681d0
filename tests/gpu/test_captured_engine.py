"""An engine that is warm, so that encoder, prefills and decodes run captured, against one that is not."""

from collections.abc import Hashable
from itertools import count

import pytest
import torch
from torch import Tensor

from stoop_worker.engine.config import EngineConfig
from stoop_worker.engine.device.prefill_shapes import PrefillShape
from stoop_worker.engine.engine import Engine
from stoop_worker.engine.graphs import Graphs
from stoop_worker.engine.request import Caption, Detect, Finished, Point, Query, Request, Sampling, SpatialRef, Task
from stoop_worker.images import Crops
from stoop_worker.models.moondream.family import MoondreamFamily
from tests.engine.micro import drain, ending, media_of
from tests.gpu.test_engine import check_same_answer, crops, requests
from tests.support.tiny_model import tiny_moondream

pytestmark = pytest.mark.gpu

TASKS: list[Task] = [
    Query("What colour is the circle?"),
    Caption("short"),
    Detect("red circle"),
    Point("blue star"),
    Query("How many?", reasoning=True),
]
REFS: tuple[SpatialRef, ...] = ((0.25, 0.5), (0.1, 0.2, 0.7, 0.9))
NUMBERS = count()


class Watched:
    """A warm engine, one that captures decodes alone, and the keys of the graphs that the warm one replays."""

    def __init__(self, replayed: list[Hashable], dtype: torch.dtype, **changes: int) -> None:
        self.replayed = replayed
        self.warm, self.plain = (
            Engine(MoondreamFamily(tiny_moondream(dtype, device="cuda")), EngineConfig(max_batch=16, **changes))
            for _ in range(2)
        )
        self.warm.warm_up()
        replayed.clear()

    def check(self, asked: list[Request]) -> list[PrefillShape]:
        """Let both answer, and compare; return the prefills that were replayed."""
        self.replayed.clear()
        ours = drain(self.warm, asked)
        shapes = [key for key in self.replayed if isinstance(key, PrefillShape)]
        theirs = drain(self.plain, asked)
        for request in asked:
            check_same_answer(ending(ours, request.id), ending(theirs, request.id))
        return shapes


@pytest.fixture
def replayed(monkeypatch: pytest.MonkeyPatch) -> list[Hashable]:
    keys: list[Hashable] = []
    replay = Graphs.replay

    def watched(graphs: Graphs, key: Hashable) -> Tensor:
        keys.append(key)
        return replay(graphs, key)

    monkeypatch.setattr(Graphs, "replay", watched)
    return keys


def images_of(shape: PrefillShape) -> int:
    return shape.given // tiny_moondream().config.text.prefix_attn


def ask(task: Task, image: Crops | None, **changes: float) -> Request:
    number = next(NUMBERS)
    sampling = Sampling(temperature=0.0, max_tokens=int(changes.get("tokens", 8)), max_objects=2, seed=number)
    return Request(str(number), task, media_of(image), sampling)


def test_one_to_eight_images_and_more(replayed: list[Hashable]) -> None:
    engines = Watched(replayed, torch.float32)
    for images in (1, 2, 3, 5, 8):
        asked = [ask(TASKS[i % 5], crops(100 * images + i, 300, 300)) for i in range(images)]
        assert [images_of(shape) for shape in engines.check(asked) if images_of(shape)] == [images]
    # more than is captured
    asked = [ask(TASKS[i % 5], crops(2000 + i, 300, 300)) for i in range(9)]
    assert not any(images_of(shape) for shape in engines.check(asked))


def test_several_images_of_nine_crops(replayed: list[Hashable]) -> None:
    engines = Watched(replayed, torch.float32)
    asked = [ask(TASKS[i % 5], crops(i, 600, 850)) for i in range(12)]
    # as many as one step encodes, then as many as it encodes beside decodes, by a captured encoder
    assert [images_of(shape) for shape in engines.check(asked) if images_of(shape)] == [7, 3, 2]
    assert ("vision", 27) in replayed and ("vision", 18) in replayed


def test_text_alone_and_images_in_the_cache(replayed: list[Hashable]) -> None:
    engines = Watched(replayed, torch.float32)
    image = crops(1, 600, 850)
    shapes = engines.check([ask(TASKS[0], image), ask(Query("What is a circle?"), None), ask(TASKS[1], image)])
    assert [images_of(shape) for shape in shapes] == [1, 0]
    # prompts alone; some are cached except for their last position
    asked = [ask(TASKS[i % 5], image) for i in range(10)] + [ask(Query("Why?"), None) for _ in range(5)]
    assert {images_of(shape) for shape in engines.check(asked)} == {0}
    asked += [ask(TASKS[2], crops(3, 300, 300)), ask(Query("How many are there?"), None)]
    assert {images_of(shape) for shape in engines.check([*asked[-2:], *asked[:4]])} == {1}


def test_a_long_prompt_in_pieces(replayed: list[Hashable]) -> None:
    engines = Watched(replayed, torch.float32, token_budget=96)
    asked = [ask(Query("Is there a red circle? " * 30), None), ask(Query("How many? " * 20), crops(1, 300, 300))]
    assert {images_of(shape) for shape in engines.check(asked)} == {0, 1}


def test_coordinates_and_sizes(replayed: list[Hashable]) -> None:
    engines = Watched(replayed, torch.float32)
    asked = [ask(Query("What is this?", spatial_refs=REFS), crops(i, 300, 300)) for i in range(3)]
    assert [images_of(shape) for shape in engines.check(asked)] == [3]
    # too many for the places that they have: uncaptured
    assert engines.check([ask(Query("What?", spatial_refs=REFS * 4), crops(9, 300, 300))]) == []


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_mixture_by_chance_ends_and_leaves_the_pool_whole(dtype: torch.dtype, replayed: list[Hashable]) -> None:
    engines = Watched(replayed, dtype, token_budget=2048)
    asked = requests(64, temperature=0.7)
    outputs = drain(engines.warm, asked)
    assert all(isinstance(ending(outputs, request.id), Finished) for request in asked)
    stats = engines.warm.stats
    assert (stats.waiting, stats.running, stats.pages_used) == (0, 0, 0)


def test_a_mixture_answers_as_uncaptured(replayed: list[Hashable]) -> None:
    assert Watched(replayed, torch.float32, token_budget=2048).check(requests(40, temperature=0.0))


def test_preemption_changes_no_answer(replayed: list[Hashable]) -> None:
    needed = tiny_moondream().config.text.max_context // 16 + 1
    engines = Watched(replayed, torch.float32, pages=needed)
    asked = [ask(Query("What?", reasoning=True), crops(0, 300, 300), tokens=60) for _ in range(12)]
    engines.check(asked)
