"""The short form of every case: few jobs, few faults, a short lease; `make chaos` is the long one."""

from pathlib import Path

import pytest

from tests.chaos.cases import CASES
from tests.chaos.deployment import Load
from tests.chaos.verdict import Verdict

LOADS = {
    # few permits make the load last until a busy machine has done the harm
    "workers_killed": Load(jobs=300, faults=1, lease=1.0, workers=2, permits=16),
    "engines_killed": Load(jobs=300, faults=1, lease=1.0, workers=2, permits=16),
    "two_models": Load(jobs=300, faults=2, lease=1.0, workers=2),
    "redis_killed_everysec": Load(jobs=200, faults=2, lease=2.0, workers=1),
    "redis_killed_always": Load(jobs=200, faults=1, lease=2.0, workers=1),
    "worker_frozen": Load(jobs=300, faults=1, lease=1.0, workers=2),
    "poison_among_others": Load(jobs=101, faults=1, lease=2.0),
    "engine_hung": Load(jobs=41, faults=1, lease=2.0),
    "long_job": Load(jobs=100, faults=0, lease=1.0, workers=2),
    "stopped_under_load": Load(jobs=300, faults=1, lease=2.0, workers=2),
    "stopped_twice": Load(jobs=5, faults=1, lease=2.0),
    "redis_link_bad": Load(jobs=200, faults=2, lease=2.0, workers=1),
    "store_bad": Load(jobs=60, faults=0, lease=2.0, workers=1),
}
LONG_ALONE = {"on_cluster"}
"""Cases of `make chaos` alone: three more servers, for which CI has no cores."""

ALL_STREAM = {"stopped_twice"}

RERUN = {"workers_killed", "engines_killed", "two_models", "worker_frozen", "poison_among_others"}
# a lease and a third, and the time that a busy machine takes to start an engine
RECOVERY_SECONDS = 20.0


@pytest.fixture(autouse=True)
def own_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STOOP_REDIS_URL", raising=False)


def test_every_case_has_its_short_form() -> None:
    assert LOADS.keys() == CASES.keys() - LONG_ALONE


@pytest.mark.parametrize("name", LOADS)
async def test_nothing_is_lost_nor_answered_twice(name: str, tmp_path: Path) -> None:
    verdict: Verdict = await CASES[name](tmp_path / name, LOADS[name])
    assert verdict.jobs == LOADS[name].jobs
    assert (verdict.lost, verdict.twice, verdict.left) == (0, 0, 0), verdict
    assert name in ALL_STREAM or 0.45 * verdict.jobs < verdict.unlogged <= 0.5 * verdict.jobs, "half do not stream"
    assert bool(verdict.reruns) >= (name in RERUN), "the faults have hit jobs that ran"
    assert (verdict.recovery_last or 0) < RECOVERY_SECONDS, "and these came back soon"
