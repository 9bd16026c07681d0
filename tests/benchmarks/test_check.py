from functools import partial
from pathlib import Path

import pytest
import torch

from benchmarks.engine.bench import photos_of
from benchmarks.engine.check import WrongAnswers, check_engine
from benchmarks.engine.full_size import open_model
from benchmarks.engine.image_processes import prepare
from benchmarks.engine.workloads import WORKLOADS, Ask
from stoop_worker.engine.config import EngineConfig
from stoop_worker.engine.engine import Engine
from stoop_worker.models.moondream.family import MoondreamFamily
from stoop_worker.models.moondream.model import Moondream

ASKS = [WORKLOADS["mixed"].ask(number) for number in range(8)]  # every skill, two questions a photo


RIGHT = [
    ("tiny", torch.float32),
    ("tiny", torch.bfloat16),
    ("tiny3", torch.float32),
    ("tiny3-fp8", torch.float32),
    ("tiny3", torch.bfloat16),
    ("tiny3-fp8", torch.bfloat16),
]


def engine(model: Moondream) -> Engine:
    return Engine(MoondreamFamily(model), EngineConfig(pages=300))


def check(engine: Engine, model: Moondream, asks: list[Ask], photos: Path) -> float:
    precision = str(model.dtype).removeprefix("torch.")
    jpegs = photos_of(asks, photos, most=8)
    return check_engine(engine, model, asks, jpegs, precision=precision).mean_regret


@pytest.mark.parametrize(("size", "dtype"), RIGHT)
def test_a_right_engine_passes(size: str, dtype: torch.dtype, photos: Path) -> None:
    model = open_model(size, device="cpu", dtype=dtype)
    assert check(engine(model), model, ASKS, photos) < (0.01 if size.startswith("tiny3") else 0.002)


@pytest.mark.parametrize("undecoded", [False, True])
def test_so_does_one_that_cuts_or_decodes_the_photos_itself(photos: Path, undecoded: bool) -> None:
    model = open_model("tiny", device="cpu", dtype=torch.float32)
    jpegs = photos_of(ASKS, photos, most=8)
    load = partial(prepare, geometry=None, on_device=True, undecoded=undecoded)
    found = check_engine(engine(model), model, ASKS, jpegs, precision="float32", load=load)
    assert found.same == found.choices


@pytest.mark.parametrize(
    ("size", "dtype"), [("tiny", torch.float32), ("tiny", torch.bfloat16), ("tiny3", torch.bfloat16)]
)
def test_an_engine_of_another_model_does_not(size: str, dtype: torch.dtype, photos: Path) -> None:
    model, other = (open_model(size, device="cpu", dtype=dtype, seed=seed) for seed in (1, 2))
    with pytest.raises(WrongAnswers, match="the mean may be"):
        check(engine(other), model, ASKS, photos)


def test_answers_that_end_early_are_wrong(photos: Path) -> None:
    model = open_model("tiny", device="cpu", dtype=torch.float32)
    model.weights.text.lm_head.bias[model.config.tokenizer.eos_id] = 1e4
    with pytest.raises(WrongAnswers, match="was answered with"):
        check(engine(model), model, ASKS, photos)
