"""Every metric that the processes expose, with the labels of each."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from prometheus_client.metrics_core import Metric

from stoop.exporter.metrics import METRICS
from stoop.gateway.grpc.metrics import GrpcMetrics
from stoop.gateway.metrics import HttpMetrics
from stoop_schemas.failure import Failure, FailureCode
from stoop_schemas.result import Metrics as Times
from stoop_schemas.result import Result
from stoop_schemas.skill import Output, Skill
from stoop_schemas.state import State
from stoop_worker.engine.stats import Stats, Totals
from stoop_worker.gpu_workers.devices import Device
from stoop_worker.gpu_workers.member import Member
from stoop_worker.gpu_workers.metrics import MergedMetrics
from stoop_worker.metrics import Ending, Metrics

__all__ = ["exposed_by_exporter", "exposed_by_gateway", "exposed_by_parent", "exposed_by_worker"]


def exposed_by_exporter() -> dict[str, set[str]]:
    """The names of the exporter's samples, each with its labels."""
    return {name: set(declared.labels) for name, declared in METRICS.items()}


def exposed_by_gateway() -> dict[str, set[str]]:
    """The names of the gateway's samples, each with its labels."""
    metrics = HttpMetrics()
    metrics.begun("/v1/query", 0.1, streams=False)
    metrics.ended("/v1/query", 200, 0.2, code=None, streamed=False)
    GrpcMetrics(metrics.registry, metrics.refused).ended("ModelInfer", "OK", 0.2, None)
    return _samples(metrics.registry.collect())


def exposed_by_worker() -> dict[str, set[str]]:
    """The names of a worker's samples, each with its labels."""
    metrics = Metrics()
    metrics.loaded("model", "cpu")
    metrics.watch_engine(lambda: Stats(Totals(), 0, 0, 0, 0, 0).figures)
    metrics.fetch_failed("image_not_found")
    done = Result(id="a", status=State.COMPLETED, skill=Skill.QUERY, output=Output(answer="x"), metrics=Times(1, 2))
    failed = Result(
        id="b", status=State.FAILED, skill=Skill.QUERY, failure=Failure.of(FailureCode.IMAGE_NOT_FOUND, "x")
    )
    for result, outcome in ((done, "completed"), (failed, "failed")):
        metrics.settled(Ending("bulk", outcome, result, 1.0))
    return _samples(metrics.registry.collect())


def exposed_by_parent() -> dict[str, set[str]]:
    """The names of the samples that the parent of several workers adds, each with its labels."""
    members = [Member(Device("0", "0"), [], {}, Path("ready"))]
    return _samples(MergedMetrics(members, lambda _member, _path: None).collect())


def _samples(families: Iterable[Metric]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for family in families:
        for sample in family.samples:
            if not sample.name.endswith("_created"):
                labels: Mapping[str, str] = sample.labels
                found.setdefault(sample.name, set()).update(labels)
    return found
