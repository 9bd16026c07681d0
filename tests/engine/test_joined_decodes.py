"""Decodes beside the prefill of an image: a few are rows of the prefill, and more are a decode of their own."""

import pytest

from stoop_worker.engine.config import EngineConfig
from stoop_worker.engine.engine import Engine
from stoop_worker.engine.request import Query
from stoop_worker.models.moondream.family import MoondreamFamily
from stoop_worker.models.moondream.model import Moondream
from tests.engine import naive
from tests.engine.micro import GROUNDED, micro_moondream, micro_moondream3
from tests.engine.test_engine import GREEDY, assert_equal, play, request

TEXT, IMAGE = (Query("Why?", reasoning=False), None, GREEDY), (Query("Why?", reasoning=False), 0, GREEDY)


@pytest.mark.parametrize(
    ("model", "texts", "joined"),
    [
        (micro_moondream(GROUNDED), 1, True),
        (micro_moondream(GROUNDED), 8, True),
        (micro_moondream(GROUNDED), 9, False),
        (micro_moondream3(GROUNDED), 9, True),
    ],
)
def test_decodes_beside_an_image(model: Moondream, texts: int, joined: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    family = MoondreamFamily(model)
    engine = Engine(family, EngineConfig(page_size=4, max_batch=16, token_budget=64, prefix_cache=False))
    steps: list[str] = []
    noted = {"encode": (family, "image "), "step": (family, "decode "), "schedule": (engine._scheduler, "| ")}
    for name, (owner, note) in noted.items():
        real = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *given, real=real, note=note: (steps.append(note), real(*given))[1])
    outputs = play(engine, [*[(0, TEXT)] * texts, (3, IMAGE)], aborts={})
    before, _, after = "".join(steps).partition("image ")
    assert before.endswith("decode | ")
    assert after.startswith("| decode " if joined else "decode | ")
    for index in range(texts):
        assert_equal(outputs[str(index)], naive.answer(model, request("text", TEXT)))
    assert_equal(outputs[str(texts)], naive.answer(model, request("image", IMAGE)))
