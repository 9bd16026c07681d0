"""Adapters in a few places: the answers of merged weights, whichever adapter a place held before."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from stoop_worker.engine.config import EngineConfig
from stoop_worker.engine.engine import Engine
from stoop_worker.engine.request import Caption, Query, Refused, Request
from stoop_worker.errors import ConfigError
from stoop_worker.models.moondream.adapters import ResidentAdapters
from stoop_worker.models.moondream.family import MoondreamFamily
from tests.engine.micro import MICRO, crops_of, drain, ending, media_of
from tests.engine.test_engine import assert_equal
from tests.models.moondream.adapters.test_bank import CASES, SAMPLING, expected, merged, variant

LIKE = torch.zeros(1, dtype=torch.float64)


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def folder(case: str, tmp_path: Path) -> Path:
    _, adapters, spell = CASES[case]
    save_file(spell(adapters["cats"]), tmp_path / "cats.safetensors")
    torch.save({"lora_state_dict": spell(adapters["dogs"])}, tmp_path / "dogs.pt")
    (tmp_path / "torn.safetensors").write_bytes(b"nothing of the kind")
    return tmp_path


def engine_with(
    case: str, folder: Path, *, count: int, rank: int = 4, fused: bool = False
) -> tuple[Engine, ResidentAdapters]:
    config = CASES[case][0]
    places = ResidentAdapters(folder, config.text, count=count, rank=rank, like=LIKE)
    family = MoondreamFamily(merged(config, {}), fused=fused, adapters=places)
    return Engine(family, EngineConfig(page_size=4, max_batch=4, token_budget=64)), places


def asked(name: str, adapter: str | None) -> Request:
    return Request(name, Caption("short"), media_of(crops_of(0)), SAMPLING, adapter=adapter)


def test_one_place_serves_one_adapter_after_another(case: str, folder: Path) -> None:
    engine, _ = engine_with(case, folder, count=1)
    for adapter in ("cats", "dogs", None, "cats", "cats", "dogs"):
        outputs = drain(engine, [asked("a", adapter)])
        assert_equal(outputs["a"], expected(case, adapter, Caption("short"), 0))


@pytest.mark.parametrize("fused", [False, True])
def test_a_batch_mixes_the_adapters_of_its_places(case: str, folder: Path, fused: bool) -> None:
    engine, _ = engine_with(case, folder, count=2, fused=fused)
    kinds = ["cats", None, "dogs", "cats"]
    outputs = drain(engine, [asked(str(number), adapter) for number, adapter in enumerate(kinds)])
    for number, adapter in enumerate(kinds):
        assert_equal(outputs[str(number)], expected(case, adapter, Caption("short"), 0))


def test_the_adapter_used_longest_ago_makes_room(case: str, folder: Path) -> None:
    engine, places = engine_with(case, folder, count=2)
    (folder / "birds.safetensors").write_bytes((folder / "cats.safetensors").read_bytes())
    for adapter in ("cats", "dogs", "cats", "birds"):
        drain(engine, [asked("a", adapter)])
    (folder / "cats.safetensors").unlink()
    drain(engine, [asked("a", "cats")])  # still in its place
    with pytest.raises(Exception, match="no adapter 'dogs'"):
        (folder / "dogs.pt").unlink()
        places.take("dogs")


@pytest.mark.parametrize(
    ("adapter", "reason"), [("torn", "the adapter 'torn' cannot be used: "), ("birds", "there is no adapter 'birds'")]
)
def test_one_that_cannot_be_used_fails_its_job_alone(case: str, folder: Path, adapter: str, reason: str) -> None:
    engine, _ = engine_with(case, folder, count=1)
    for _ in range(2):
        outputs = drain(engine, [asked("bad", adapter), asked("good", "cats")])
        last = ending(outputs, "bad")
        assert isinstance(last, Refused) and last.message.startswith(reason)
        assert_equal(outputs["good"], expected(case, "cats", Caption("short"), 0))


def test_a_place_in_use_is_not_taken_and_comes_back(case: str, folder: Path) -> None:
    engine, _ = engine_with(case, folder, count=1)
    outputs = drain(engine, [asked("first", "cats"), asked("second", "dogs")])
    last = ending(outputs, "second")
    assert isinstance(last, Refused) and "see --resident-adapters" in last.message
    engine.submit(asked("aborted", "cats"))
    engine.abort("aborted")
    engine.step()
    too_long = Request("long", Query("why " * 4000), (), SAMPLING, adapter="cats")
    assert isinstance(ending(drain(engine, [too_long]), "long"), Refused)
    outputs = drain(engine, [asked("third", "dogs")])
    assert_equal(outputs["third"], expected(case, "dogs", Caption("short"), 0))


def test_a_rank_over_the_limit_is_refused_with_the_flag(tmp_path: Path) -> None:
    spell = CASES["moondream2"][2]
    save_file(spell(variant(5, 10)), tmp_path / "wide.safetensors")
    places = ResidentAdapters(tmp_path, MICRO.text, count=1, rank=4, like=LIKE)
    with pytest.raises(Exception, match="has rank 5, over 4: see --adapter-rank"):
        places.take("wide")


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no such folder"):
        ResidentAdapters(tmp_path / "none", MICRO.text, count=1, rank=4, like=LIKE)
