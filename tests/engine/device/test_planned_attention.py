"""Engines whose attention a library plans, against engines with our own; a stand-in takes the library's place.

Work that is kept and called again takes the place of CUDA graphs, so every replay must have been planned for.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from stoop_worker.engine.config import EngineConfig
from stoop_worker.engine.device import runner
from stoop_worker.engine.device.attention_choice import AttentionChoice
from stoop_worker.engine.device.planned_attention import PlannedAttention
from stoop_worker.engine.engine import Engine
from stoop_worker.engine.model import Model
from stoop_worker.engine.request import Chat, Finished, Grammar, Message, Query, Request, Sampling
from stoop_worker.errors import ConfigError
from stoop_worker.kernels.paged_attention.flashinfer import FlashInfer, HeadSizes
from stoop_worker.models.decoder.family import DecoderFamily
from stoop_worker.models.families import load_model
from stoop_worker.models.loading.options import LoadOptions
from stoop_worker.models.moondream.family import MoondreamFamily
from tests.engine.kept_work import KeptWork
from tests.engine.micro import crops_of, drain, ending, media_of, micro_moondream
from tests.support.stand_in_flashinfer import StandInFlashInfer
from tests.support.tiny_decoder import LLAMA, write_decoder

LIMITS = {"page_size": 4, "max_context": 160, "max_batch": 6, "token_budget": 40}


def engine_of(model: Model, library: StandInFlashInfer | None, asked: str = "auto") -> Engine:
    """Return a warm engine that captures; with a library, it plans all attention."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "_can_capture", lambda model: True)
        patch.setattr(runner, "Graphs", KeptWork)
        if library is not None:
            choice = AttentionChoice("flashinfer", "flashinfer", "asked for")
            patch.setattr(runner, "choose_attention", lambda asked, facts: choice)
            patch.setattr(runner, "FlashInfer", partial(FlashInfer, library=library))
        return Engine(model, EngineConfig(**LIMITS, lookahead=True, attention=asked))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DecoderFamily]:
    folder = write_decoder(tmp_path_factory.mktemp("llama"), LLAMA)
    model = load_model(folder, LoadOptions(torch.device("cpu"), torch.float32))
    assert isinstance(model, DecoderFamily)
    yield model
    trials = model._model.language.grammars._trials
    while not trials.empty():
        trials.get().close()  # a process that is still running would be reported in a later test


def ask(name: str, words: int, tokens: int = 6, **changes: Any) -> Request:
    text = " ".join(["the cat sat"] * words)
    sampling = Sampling(**{"temperature": 0.7, "max_tokens": tokens, "seed": words, **changes})
    return Request(name, Chat((Message("user", (text,)),)), (), sampling)


def texts(engine: Engine, requests: list[Request]) -> list[str]:
    outputs = drain(engine, requests)
    ends = [ending(outputs, request.id) for request in requests]
    assert all(isinstance(end, Finished) for end in ends), ends
    return [end.text for end in ends if isinstance(end, Finished)]


def test_chats_answer_as_with_our_kernels(decoder: DecoderFamily) -> None:
    library = StandInFlashInfer()
    planned, own = engine_of(decoder, library), engine_of(decoder, None)
    planned.warm_up()
    # short ones, one in several parts, more than there are seats, and some of them again from the cache
    rounds = [
        [ask("a", 1)],
        [ask("b", 9, tokens=12), ask("c", 1)],
        [ask(f"d{n}", 1 + n % 3, tokens=3 + n) for n in range(9)],
        [ask("b", 9, tokens=4), ask("a", 1, tokens=9)],
    ]
    for requests in rounds:
        library.runs.clear()
        assert texts(planned, requests) == texts(own, requests)
        assert set(library.runs) == {"decode", "prefill"}


class Uncompiled(StandInFlashInfer):
    """The package on a machine whose nvcc fails."""

    def BatchDecodeWithPagedKVCacheWrapper(self, workspace: Tensor, layout: str, **settings: Any) -> Any:
        raise RuntimeError("Ninja build failed. Ninja output:\nnvcc fatal: Unsupported gpu architecture")


def test_kernels_that_do_not_compile_leave_attention_to_ours(decoder: DecoderFamily) -> None:
    engine = engine_of(decoder, Uncompiled(), asked="auto")
    assert engine.attention.decode == "triton" and "Ninja build failed" in engine.attention.why
    assert texts(engine, [ask("a", 1)]) == texts(engine_of(decoder, None), [ask("a", 1)])
    with pytest.raises(ConfigError, match="--attention flashinfer: FlashInfer's kernels do not load: Ninja build"):
        engine_of(decoder, Uncompiled(), asked="flashinfer")


def test_limits_on_the_choice_are_captured_later_and_planned_too(decoder: DecoderFamily) -> None:
    planned, own = engine_of(decoder, StandInFlashInfer()), engine_of(decoder, None)
    planned.warm_up()
    requests = [
        ask("a", 2, tokens=9),
        ask("b", 3, tokens=9, top_k=4),
        ask("c", 4, tokens=9, grammar=Grammar(regex="[0-9]{30}")),
        ask("d", 1, tokens=9, presence_penalty=1.0),
    ]
    assert texts(planned, requests) == texts(own, requests)


def test_images_stay_with_our_kernels_and_prompts_behind_them_are_planned() -> None:
    library = StandInFlashInfer()
    planned, own = (engine_of(MoondreamFamily(micro_moondream()), each) for each in (library, None))
    image = media_of(crops_of(3, 8, 8))
    sampling = Sampling(temperature=0.7, max_tokens=5, seed=5)
    first = Request("a", Query("What colour is the red circle?"), image, sampling)
    assert texts(planned, [first]) == texts(own, [first])
    assert "prefill" not in library.runs and "decode" in library.runs
    # the image is in the cache now
    again = [
        Request("b", Query("How many are there?"), image, sampling),
        Request("c", Query("Why is it so?"), (), sampling),
    ]
    assert texts(planned, again) == texts(own, again)
    assert "prefill" in library.runs


@pytest.fixture
def plans() -> tuple[PlannedAttention, StandInFlashInfer]:
    library = StandInFlashInfer()
    made = FlashInfer(HeadSizes(4, 2, 16, 4, torch.float32), torch.device("cpu"), rows=3, library=library)
    return PlannedAttention(made, sequences=3, pages=5), library


def test_a_row_of_padding_has_one_position(plans: tuple[PlannedAttention, StandInFlashInfer]) -> None:
    attention, library = plans
    attention.decode(3)
    contexts = np.array([9, 0, 4], dtype=np.int32)
    table = np.array([[7, 3, 5, 99, 99], [2, 99, 99, 99, 99], [6, 99, 99, 99, 99]], dtype=np.int32)
    attention.plan_decode(contexts, table)
    wrapper = library.planned
    assert (wrapper.starts, wrapper.lasts) == ([0, 3, 4, 5], [1, 1, 4])
    assert wrapper.device_pages[:5].tolist() == [7, 3, 5, 2, 6]


def test_kernels_that_do_not_compile_raise_an_error_with_advice() -> None:
    class Broken(StandInFlashInfer):
        def BatchDecodeWithPagedKVCacheWrapper(self, *given: object, **settings: object) -> object:  # type: ignore[override]
            raise RuntimeError("Ninja build failed.")

    made = FlashInfer(HeadSizes(4, 2, 16, 4, torch.float32), torch.device("cpu"), rows=3, library=Broken())
    with pytest.raises(ConfigError, match=r"--attention triton.*Ninja build failed"):
        PlannedAttention(made, sequences=3, pages=5).decode(1)
