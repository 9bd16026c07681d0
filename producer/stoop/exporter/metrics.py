"""Every metric of `stoop exporter`: its name, unit, labels and meaning."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from itertools import groupby
from typing import Final

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from stoop.exporter.reader import PartitionReading, Reading
from stoop.operator import QueueStatus, TenantStatus
from stoop_schemas.state import TERMINAL

__all__ = ["METRICS", "OTHER_TENANTS", "QueueCollector"]

_LANE, _PARTITION = ("lane", "partition"), ("partition",)

OTHER_TENANTS: Final = "(others)"
"""The label of all tenants beyond those shown; no tenant can have this name."""

_Sample = tuple[str, tuple[str, ...], float]
"""A metric's name, the values of its labels, and its value."""


@dataclass(frozen=True, slots=True)
class _Declared:
    help: str
    labels: tuple[str, ...] = ()

    def family(self, name: str) -> GaugeMetricFamily | CounterMetricFamily:
        kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
        return kind(name, self.help, labels=self.labels)


METRICS: Final = {
    "stoop_queue_waiting": _Declared("Jobs that are waiting in a lane", _LANE),
    "stoop_queue_in_flight": _Declared("Jobs of a lane that workers are running", _LANE),
    "stoop_queue_oldest_seconds": _Declared(
        "Age of the oldest job that is waiting in a lane; 0 if none is waiting", _LANE
    ),
    "stoop_queue_paused": _Declared("1 while a lane is paused", _LANE),
    "stoop_queue_served": _Declared("1 while a live worker claims from a lane", _LANE),
    "stoop_queue_tenant_jobs": _Declared("Jobs of a tenant in a lane, waiting or running", (*_LANE, "tenant")),
    "stoop_queue_delayed": _Declared(
        "Jobs that wait for their next attempt, or for a time that Celery has set", _PARTITION
    ),
    "stoop_queue_quarantined": _Declared(
        "Jobs in quarantine: they were running when a worker or an engine died", ("kind", "partition")
    ),
    "stoop_queue_wanted_jobs": _Declared(
        "Jobs that need a worker now or later, for autoscalers: "
        "running, delayed, in quarantine, or waiting in a lane that is not paused"
    ),
    "stoop_queue_dead": _Declared("Dead letters in the queue", _PARTITION),
    "stoop_workers": _Declared("Workers with a valid lease", _PARTITION),
    "stoop_permits": _Declared("Jobs that all live workers together may run at a time", _PARTITION),
    "stoop_jobs_ended_total": _Declared("Jobs that ended, by their final state", ("state", "partition")),
    "stoop_jobs_retried_total": _Declared("Failed attempts after which the job was tried again", _PARTITION),
    "stoop_jobs_reclaimed_total": _Declared("Jobs taken over from lost workers", _PARTITION),
    "stoop_jobs_dead_total": _Declared("Jobs that became dead letters", _PARTITION),
    "stoop_redis_up": _Declared("1 if the exporter can read the queue, otherwise 0"),
    "stoop_redis_memory_bytes": _Declared("Memory that Redis uses"),
    "stoop_redis_memory_ratio": _Declared(
        "Memory that Redis uses, as a share of maxmemory; absent without a maxmemory"
    ),
    "stoop_queue_read_seconds": _Declared("Time that the exporter took to read the queue"),
    "stoop_build_info": _Declared("1; the version is a label", ("process", "version")),
}
"""Every metric by its name. Those whose names end in `_total` are counters, the others gauges."""

_LAST_STATES: Final = sorted(state.value for state in TERMINAL)


class QueueCollector(Collector):
    """Turns the newest reading into metrics; without one only `stoop_redis_up` and the version are there.

    Of each lane's tenants it shows the `tenants` with the most jobs, and the others as one.
    """

    def __init__(self, read: Callable[[], Reading | None], *, tenants: int = 0) -> None:
        self._read = read
        self._tenants = tenants

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics; called by Prometheus's client at each scrape."""
        families = {name: declared.family(name) for name, declared in METRICS.items()}
        for name, labels, value in self._samples(self._read()):
            families[name].add_metric(labels, value)
        yield from families.values()

    def _samples(self, reading: Reading | None) -> Iterator[_Sample]:
        yield "stoop_build_info", ("exporter", version("stoop")), 1
        yield "stoop_redis_up", (), reading is not None
        if reading is None:
            return
        yield "stoop_queue_read_seconds", (), reading.seconds
        if reading.memory is not None:
            yield "stoop_redis_memory_bytes", (), reading.memory.used_bytes
            if reading.memory.limit_bytes:
                yield "stoop_redis_memory_ratio", (), reading.memory.used_bytes / reading.memory.limit_bytes
        yield "stoop_queue_wanted_jobs", (), sum(_wanted(partition.status) for partition in reading.partitions)
        for partition in reading.partitions:
            yield from _lanes(partition)
            yield from _counts(partition)
            yield from _top_tenants(partition, self._tenants)


def _wanted(status: QueueStatus) -> int:
    """Count for autoscalers; jobs in flight too, so that the workers of the last jobs are not stopped."""
    in_lanes = sum(lane.in_flight + (0 if lane.paused else lane.waiting) for lane in status.lanes)
    return in_lanes + status.delayed + sum(status.quarantined.values())


def _lanes(reading: PartitionReading) -> Iterator[_Sample]:
    for lane in reading.status.lanes:
        labels = (lane.lane, str(reading.status.partition))
        yield "stoop_queue_waiting", labels, lane.waiting
        yield "stoop_queue_in_flight", labels, lane.in_flight
        yield "stoop_queue_oldest_seconds", labels, lane.oldest_seconds or 0
        yield "stoop_queue_paused", labels, lane.paused
        yield "stoop_queue_served", labels, lane.served


def _counts(reading: PartitionReading) -> Iterator[_Sample]:
    status = reading.status
    partition = str(status.partition)
    yield "stoop_queue_delayed", (partition,), status.delayed
    for kind, jobs in status.quarantined.items():
        yield "stoop_queue_quarantined", (kind, partition), jobs
    yield "stoop_queue_dead", (partition,), status.dead
    yield "stoop_workers", (partition,), status.workers
    yield "stoop_permits", (partition,), reading.permits
    for state in _LAST_STATES:
        yield "stoop_jobs_ended_total", (state, partition), status.totals.get(state, 0)
    for name in ("retried", "reclaimed", "dead"):
        yield f"stoop_jobs_{name}_total", (partition,), status.totals.get(name, 0)


def _top_tenants(reading: PartitionReading, most: int) -> Iterator[_Sample]:
    partition = str(reading.status.partition)
    by_lane = sorted(reading.tenants, key=lambda one: (one.lane, -one.jobs, one.tenant))
    for lane, group in groupby(by_lane, key=lambda one: one.lane):
        tenants: list[TenantStatus] = list(group)
        for one in tenants[:most]:
            yield "stoop_queue_tenant_jobs", (lane, partition, one.tenant), one.jobs
        if others := tenants[most:]:
            jobs = sum(one.jobs for one in others)
            yield "stoop_queue_tenant_jobs", (lane, partition, OTHER_TENANTS), jobs
