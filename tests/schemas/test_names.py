import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoop_schemas import names
from stoop_schemas.job import NAME_PATTERN

GENERATED = "0123456789abcdef0123456789abcdef-12"


def test_the_keys_are_the_ones_of_the_contract() -> None:
    assert names.lane("bulk", 3) == "stoop:{3}:jobs:bulk"
    assert names.dead(3) == "stoop:{3}:dead"
    assert names.delayed(3) == "stoop:{3}:delayed"
    assert names.live("w1", 3) == "stoop:{3}:live:w1"
    assert names.idempotency("k", 3) == "stoop:{3}:idem:k"
    assert names.idempotency("k", 3, "acme") == "stoop:{3}:idem/acme/k"
    assert names.job("mine") == "stoop:{0}:job:mine"
    assert names.result("mine") == "stoop:{0}:result:mine"
    assert names.events("mine") == "stoop:{0}:events:mine"
    assert names.log("mine") == "stoop:{0}:log:mine"
    assert names.CONTROL == "stoop:control"


@pytest.mark.parametrize("key", [names.job, names.result, names.events, names.log])
def test_a_generated_id_names_the_partition_of_its_keys(key: object) -> None:
    assert callable(key)
    assert key(GENERATED).startswith("stoop:{12}:")


@given(st.integers(0, 99_999))
def test_a_new_id_names_its_partition(p: int) -> None:
    made = names.new_id(p)
    assert names.partition(made) == p
    assert re.fullmatch(NAME_PATTERN, made)


def test_new_ids_differ() -> None:
    assert len({names.new_id() for _ in range(100)}) == 100


@pytest.mark.parametrize(
    "job_id",
    [
        "mine",
        "mine-3",
        "1795000000000-3",
        GENERATED.upper(),
        GENERATED + "\n",
        f"x{GENERATED}",
        GENERATED[:-3],
        "a" * 128,
    ],
)
def test_any_other_id_is_of_partition_0(job_id: str) -> None:
    assert names.partition(job_id) == 0


@pytest.mark.parametrize("key", [names.job, names.result, names.events, names.log])
def test_a_job_under_its_entrys_id_has_its_keys_in_the_partition_of_the_entry(key: Callable[..., str]) -> None:
    assert key("1795000000000-3", 7).startswith("stoop:{7}:")


def test_each_model_has_its_own_lanes_and_quarantine() -> None:
    assert names.model_lane("bulk", None) == "bulk"
    assert names.model_lane("bulk", "qwen3") == names.model_lane("qwen3:bulk", "qwen3") == "qwen3:bulk"
    assert names.quarantine("small", 3) == "stoop:{3}:jobs:quarantine:small"
    assert names.quarantine("alone", 3, "qwen3") == "stoop:{3}:jobs:qwen3:quarantine:alone"
    assert names.quarantine_workers(3, "qwen3") == "stoop:{3}:turns:qwen3"


@pytest.mark.parametrize(
    ("lane", "found"),
    [
        ("quarantine:small", (None, "small")),
        ("qwen3:quarantine:alone", ("qwen3", "alone")),
        ("quarantine:large", None),
        ("my-quarantine:small", None),
        ("bulk", None),
        ("quarantine:small/acme", None),
    ],
)
def test_a_quarantine_is_known_by_its_lane(lane: str, found: object) -> None:
    assert names.quarantine_of(lane) == found
