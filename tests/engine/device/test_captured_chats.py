"""Captured prefills of a model without media, which nothing is given, against those that are not captured."""

from pathlib import Path

import pytest
import torch

from stoop_worker.engine.config import EngineConfig
from stoop_worker.engine.device import runner
from stoop_worker.engine.device.prefill_shapes import PrefillShape
from stoop_worker.engine.engine import Engine
from stoop_worker.engine.request import Chat, Finished, Message, Request, Sampling
from stoop_worker.kernels.backend import has_triton
from stoop_worker.models.decoder import text
from stoop_worker.models.families import load_model
from stoop_worker.models.loading.options import LoadOptions
from tests.engine.kept_work import KeptWork, attention
from tests.engine.micro import drain, ending
from tests.support.tiny_decoder import LLAMA, write_decoder


@pytest.mark.skipif(torch.cuda.is_available() or not has_triton(), reason="needs Triton's interpreter")
def test_each_row_of_a_captured_prefill_has_a_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = load_model(write_decoder(tmp_path, LLAMA), LoadOptions(torch.device("cpu"), torch.float32))
    config = {"token_budget": 96, "max_batch": 3}
    plain = Engine(model, EngineConfig(page_size=4, **config))
    graphs = KeptWork()
    monkeypatch.setattr(runner, "_can_capture", lambda model: True)
    monkeypatch.setattr(runner, "Graphs", lambda: graphs)
    monkeypatch.setattr(text, "paged_attention", attention)
    captured = Engine(model, EngineConfig(page_size=4, lookahead=True, **config))
    captured.warm_up()

    # the second prefill is smaller, so what the first has left lies behind its rows
    for count in (2, 1):
        requests = [
            Request(
                f"{count}-{i}", Chat((Message("user", (f"how are you, no. {i}?",)),)), (), Sampling(0.0, max_tokens=4)
            )
            for i in range(count)
        ]
        ours, theirs = drain(captured, requests), drain(plain, requests)
        for request in requests:
            found, expected = ending(ours, request.id), ending(theirs, request.id)
            assert isinstance(found, Finished) and isinstance(expected, Finished)
            assert found.text == expected.text
    assert [key for key in graphs.replayed if isinstance(key, PrefillShape)]
