"""The second family on a CUDA device: grouped heads and a vocabulary over 65,536 in captured graphs."""

from collections.abc import Hashable

import pytest
import torch
from torch import Tensor

from stoop_worker.engine.config import EngineConfig
from stoop_worker.engine.device.prefill_shapes import PrefillShape
from stoop_worker.engine.engine import Engine
from stoop_worker.engine.graphs import Graphs
from stoop_worker.engine.request import Finished
from tests.engine.micro import drain, ending
from tests.engine.toy_family.family import ToyFamily
from tests.engine.toy_family.questions import request

pytestmark = pytest.mark.gpu


def test_captured_steps_answer_as_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    replayed: list[Hashable] = []
    replay = Graphs.replay

    def watched(graphs: Graphs, key: Hashable) -> Tensor:
        replayed.append(key)
        return replay(graphs, key)

    monkeypatch.setattr(Graphs, "replay", watched)
    config = EngineConfig(max_batch=8, token_budget=256)
    engine = Engine(ToyFamily(torch.float32, "cuda"), config)
    engine.warm_up()
    # not the sampling with top_p: of 70,000 ids about as likely as each other, the last bit of a logit decides
    asked = [request(f"{question} {sampling}", (question, sampling)) for question in range(8) for sampling in (0, 1, 3)]
    ours, theirs = drain(engine, asked), drain(Engine(ToyFamily(torch.float32), config), asked)
    for one in asked:
        found, expected = ending(ours, one.id), ending(theirs, one.id)
        assert isinstance(found, Finished) and isinstance(expected, Finished)
        assert (found.text, found.reason) == (expected.text, expected.reason)
    assert any(isinstance(key, PrefillShape) for key in replayed)
    assert any(not isinstance(key, PrefillShape) for key in replayed)
