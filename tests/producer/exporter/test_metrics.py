"""The metrics that a reading of the queue becomes."""

import pytest
from prometheus_client import CollectorRegistry

from stoop.exporter.metrics import METRICS, OTHER_TENANTS, QueueCollector
from stoop.exporter.reader import PartitionReading, Reading
from stoop.operator import LaneStatus, MemoryUse, QueueStatus, TenantStatus

STATUS = QueueStatus(
    partition=3,
    at=0,
    lanes=(LaneStatus("interactive", 4, 2, 1.5, paused=True, served=False), LaneStatus("bulk", 0, 0, None, False)),
    delayed=5,
    quarantined={"small": 1, "alone": 0},
    dead=7,
    workers=2,
    totals={"completed": 10, "retried": 3, "a newer worker's": 1},
)
TENANTS = tuple(TenantStatus("bulk", f"tenant-{number}", number) for number in range(1, 6))
READING = Reading((PartitionReading(STATUS, 64, TENANTS),), MemoryUse(200, 800), 0.01)


def registry(reading: Reading | None, *, tenants: int = 0) -> CollectorRegistry:
    made = CollectorRegistry()
    made.register(QueueCollector(lambda: reading, tenants=tenants))
    return made


@pytest.mark.parametrize(
    ("name", "labels", "value"),
    [
        ("stoop_queue_waiting", {"lane": "interactive"}, 4),
        ("stoop_queue_in_flight", {"lane": "interactive"}, 2),
        ("stoop_queue_oldest_seconds", {"lane": "interactive"}, 1.5),
        ("stoop_queue_oldest_seconds", {"lane": "bulk"}, 0),
        ("stoop_queue_paused", {"lane": "interactive"}, 1),
        ("stoop_queue_served", {"lane": "interactive"}, 0),
        ("stoop_queue_delayed", {}, 5),
        ("stoop_queue_quarantined", {"kind": "small"}, 1),
        ("stoop_queue_dead", {}, 7),
        ("stoop_workers", {}, 2),
        ("stoop_permits", {}, 64),
        ("stoop_jobs_ended_total", {"state": "completed"}, 10),
        ("stoop_jobs_ended_total", {"state": "expired"}, 0),
        ("stoop_jobs_retried_total", {}, 3),
        ("stoop_jobs_dead_total", {}, 0),
    ],
)
def test_each_figure_is_there_by_its_name(name: str, labels: dict[str, str], value: float) -> None:
    assert registry(READING).get_sample_value(name, {**labels, "partition": "3"}) == value


def test_an_autoscaler_sees_all_jobs_except_those_waiting_in_paused_lanes() -> None:
    assert registry(READING).get_sample_value("stoop_queue_wanted_jobs") == 2 + 5 + 1
    assert registry(None).get_sample_value("stoop_queue_wanted_jobs") is None, "absent, so that the scaler falls back"


def test_memory_is_shown_as_a_share_only_where_it_is_limited() -> None:
    assert registry(READING).get_sample_value("stoop_redis_memory_ratio") == 0.25
    unlimited = registry(Reading((), MemoryUse(200, 0), 0.01))
    assert unlimited.get_sample_value("stoop_redis_memory_bytes") == 200
    assert unlimited.get_sample_value("stoop_redis_memory_ratio") is None


def test_tenants_are_bounded_and_none_is_lost_in_the_sum() -> None:
    def jobs(made: CollectorRegistry) -> dict[str, float]:
        [family] = (one for one in made.collect() if one.name == "stoop_queue_tenant_jobs")
        return {sample.labels["tenant"]: sample.value for sample in family.samples}

    assert jobs(registry(READING, tenants=2)) == {"tenant-5": 5, "tenant-4": 4, OTHER_TENANTS: 6}
    assert jobs(registry(READING, tenants=5)) == {f"tenant-{number}": number for number in range(1, 6)}


def test_a_queue_that_cannot_be_read_shows_no_old_figures() -> None:
    samples = {sample.name: sample.value for one in registry(None).collect() for sample in one.samples}
    assert samples == {"stoop_build_info": 1, "stoop_redis_up": 0}


def test_every_declared_metric_is_filled() -> None:
    filled = {sample.name for one in registry(READING, tenants=1).collect() for sample in one.samples}
    assert filled == METRICS.keys()
