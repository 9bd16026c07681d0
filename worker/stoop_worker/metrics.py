"""Every metric of the worker, declared in one place, for Prometheus."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from stoop_schemas.result import Result

__all__ = ["Metrics"]

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)


@dataclass(frozen=True, slots=True)
class _EngineFigures(Collector):
    read: Callable[[], Mapping[str, float]]

    def collect(self) -> Iterator[Metric]:
        for name, value in self.read().items():
            stem, total, _ = name.partition("_total")
            family = CounterMetricFamily if total else GaugeMetricFamily
            yield family(f"stoop_engine_{stem}", f"The engine's {stem.replace('_', ' ')}", value=value)


class Metrics:
    """Counts the worker's events; each instance has its own registry, so nothing is shared by import."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._settled = Counter(
            "stoop_jobs_settled",
            "Settled deliveries, by outcome and, if it failed, code",
            ["skill", "outcome", "code"],
            registry=self.registry,
        )
        self._lost = Counter(
            "stoop_jobs_lost_lease", "Answers discarded because the job was no longer ours", registry=self.registry
        )
        self._faults = Counter("stoop_engine_faults", "Crashes and hangs of the engine", registry=self.registry)
        self._in_flight = Gauge("stoop_jobs_in_flight", "Jobs claimed and not settled", registry=self.registry)
        self._tokens = Counter("stoop_tokens", "Tokens of completed jobs", ["kind"], registry=self.registry)
        self._stage = Histogram(
            "stoop_stage_seconds",
            "Time of a completed job in each stage",
            ["stage"],
            buckets=_SECONDS,
            registry=self.registry,
        )

    def watch_engine(self, read: Callable[[], Mapping[str, float]]) -> None:
        """Export the engine's own figures too, as `stoop_engine_<name>`, read whenever Prometheus asks."""
        self.registry.register(_EngineFigures(read))

    def in_flight(self, jobs: int) -> None:
        """Set the number of jobs in flight."""
        self._in_flight.set(jobs)

    def engine_fault(self) -> None:
        """Count a crash or hang of the engine."""
        self._faults.inc()

    def settled(self, result: Result | None, outcome: str, *, ours: bool) -> None:
        """Count the end of one delivery; `ours` is False when another worker had taken it over.

        A job that just goes back has no result.
        """
        if not ours:
            self._lost.inc()
            return
        code = result.failure.code.value if result and result.failure else ""
        self._settled.labels((result and result.skill) or "unknown", outcome, code).inc()
        if result is not None and result.output is not None:
            self._count_tokens(result)

    def _count_tokens(self, result: Result) -> None:
        metrics = result.metrics
        for kind in ("input", "output", "cached"):
            self._tokens.labels(kind).inc(getattr(metrics, f"{kind}_tokens"))
        for stage in ("queue", "fetch", "image", "prefill", "decode"):
            self._stage.labels(stage).observe(getattr(metrics, f"{stage}_time_ms") / 1000)
