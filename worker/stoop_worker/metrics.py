"""Every metric of the worker: its name, unit, labels and meaning, declared in one place for Prometheus."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from itertools import accumulate
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client import Histogram as Distribution
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from stoop_schemas.result import Result
from stoop_worker.figures import Figures, Histogram

__all__ = ["ENGINE_METRICS", "Ending", "Metrics"]

# the edges that OpenTelemetry's conventions for generative AI advise, and finer ones where a GPU is faster than these
_WHOLE = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
_FIRST_TOKEN = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
_EACH_TOKEN = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5)
_WAIT = (*_WHOLE, 300, 900, 3600)
_STAGE = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)


@dataclass(frozen=True, slots=True)
class _Declared:
    name: str
    help: str
    labels: tuple[tuple[str, str], ...] = ()


_STEP, _STEP_HELP = "stoop_engine_step_seconds", "Time of a step, by its heaviest work: encode, prefill or decode"

ENGINE_METRICS: Final = {
    "waiting": _Declared("stoop_engine_waiting", "Requests that wait for a place in the batch"),
    "running": _Declared("stoop_engine_running", "Requests in the batch"),
    "pages": _Declared("stoop_engine_pages", "Pages in the KV cache"),
    "pages_used": _Declared("stoop_engine_pages_used", "Pages that running requests hold"),
    "pages_idle": _Declared("stoop_engine_pages_idle", "Pages that only the prefix cache holds"),
    "steps_total": _Declared("stoop_engine_steps_total", "Steps of the engine"),
    "prefill_tokens_total": _Declared(
        "stoop_engine_prefill_tokens_total", "Prompt tokens computed, including the positions of images"
    ),
    "decode_tokens_total": _Declared(
        "stoop_engine_decode_tokens_total", "Output tokens computed, including those that were discarded"
    ),
    "input_tokens_total": _Declared("stoop_engine_input_tokens_total", "Input tokens of finished requests"),
    "output_tokens_total": _Declared("stoop_engine_output_tokens_total", "Output tokens of finished requests"),
    "cached_tokens_total": _Declared("stoop_engine_cached_tokens_total", "Input tokens found in the prefix cache"),
    "images_encoded_total": _Declared("stoop_engine_images_encoded_total", "Images encoded"),
    "crops_encoded_total": _Declared(
        "stoop_engine_crops_encoded_total", "Size of the encoded images, in crops or in the model family's own unit"
    ),
    "image_hits_total": _Declared(
        "stoop_engine_image_hits_total", "Requests whose images were found in the prefix cache"
    ),
    "preemptions_total": _Declared(
        "stoop_engine_preemptions_total", "Requests put back into the waiting list to free their pages"
    ),
    "finished_total": _Declared("stoop_engine_finished_total", "Finished requests"),
    "refused_total": _Declared("stoop_engine_refused_total", "Refused requests"),
    "aborted_total": _Declared("stoop_engine_aborted_total", "Aborted requests"),
    "encode_step_seconds": _Declared(_STEP, _STEP_HELP, (("kind", "encode"),)),
    "prefill_step_seconds": _Declared(_STEP, _STEP_HELP, (("kind", "prefill"),)),
    "decode_step_seconds": _Declared(_STEP, _STEP_HELP, (("kind", "decode"),)),
    "batch_sequences": _Declared("stoop_engine_batch_sequences", "Requests in the batch of one step"),
}
"""The metric of each of the engine's figures, by the figure's name; all of them restart from 0 with the engine."""


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of one delivery: its lane, its outcome by name, and the seconds since the job was queued.

    `ours` is False if another worker had taken the job over. A job that was only released has no `result`.
    """

    lane: str
    outcome: str
    result: Result | None
    seconds: float
    ours: bool = True

    @property
    def code(self) -> str | None:
        """The failure's code, if there is one."""
        return self.result.failure.code.value if self.result and self.result.failure else None


@dataclass(frozen=True, slots=True)
class _EngineFigures(Collector):
    read: Callable[[], Figures]

    def collect(self) -> Iterator[Metric]:
        families: dict[str, Any] = {}
        for name, value in self.read().items():
            declared = ENGINE_METRICS.get(name)
            if declared is None:
                continue
            family = families.setdefault(declared.name, _family(declared, value))
            labels = [label for _, label in declared.labels]
            if isinstance(value, Histogram):
                family.add_metric(labels, buckets=_buckets(value), sum_value=value.sum)
            else:
                family.add_metric(labels, value)
        yield from families.values()


def _family(declared: _Declared, value: float | Histogram) -> Metric:
    labels = [name for name, _ in declared.labels]
    if isinstance(value, Histogram):
        return HistogramMetricFamily(declared.name, declared.help, labels=labels)
    kind = CounterMetricFamily if declared.name.endswith("_total") else GaugeMetricFamily
    return kind(declared.name, declared.help, labels=labels)


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    edges = [*(str(float(edge)) for edge in histogram.edges), "+Inf"]
    return list(zip(edges, accumulate(histogram.counts), strict=True))


class Metrics:
    """Counts the worker's events; each instance has its own registry, so nothing is shared by import."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        # prometheus_client's own look-up of a series takes as long as the counting itself
        self._settled = cache(
            self._counter(
                "jobs_settled", "Ended runs of jobs, by outcome and failure code", "skill", "outcome", "code"
            ).labels
        )
        self._lost = self._counter(
            "jobs_lost_lease", "Answers that this worker discarded because another worker had taken over the job"
        )
        self._faults = self._counter("engine_faults", "Crashes and hangs of the engine")
        self._tokens = cache(
            self._counter("tokens", "Tokens of completed jobs, by kind: input, output, cached", "kind").labels
        )
        self._fetched = self._counter("fetch_bytes", "Bytes of fetched images and recordings")
        self._unfetched = self._counter(
            "fetch_failures", "Images and recordings that could not be fetched, by failure code", "code"
        )
        self._in_flight = Gauge(
            "stoop_jobs_in_flight", "Jobs that this worker has claimed and not ended yet", registry=self.registry
        )
        self._build = Gauge(
            "stoop_build_info",
            "1; the version, and the model and its device once it is loaded",
            ["process", "version", "model", "device"],
            registry=self.registry,
        )
        self._job = self._by_labels(
            "job_seconds", "Time from submission to completion of a job", _WHOLE, "skill", "lane"
        )
        self._queue = self._by_labels("queue_seconds", "Time that a completed job waited in its lane", _WAIT, "lane")
        self._first_token = self._by_labels(
            "time_to_first_token_seconds",
            "Time from submission to the first token: waiting, fetching, decoding the image, and prefill",
            _FIRST_TOKEN,
            "skill",
            "lane",
        )
        self._each_token = self._by_labels(
            "time_per_output_token_seconds",
            "Mean time per token of a job, without its first token",
            _EACH_TOKEN,
            "skill",
        )
        self._stage = self._by_labels("stage_seconds", "Time that a completed job spent in each stage", _STAGE, "stage")

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"stoop_{name}", text, labels, registry=self.registry)

    def _by_labels(self, name: str, text: str, edges: tuple[float, ...], *labels: str) -> Callable[..., Distribution]:
        return cache(Distribution(f"stoop_{name}", text, labels, buckets=edges, registry=self.registry).labels)

    def watch_engine(self, read: Callable[[], Figures]) -> None:
        """Export the engine's figures too, under the names of `ENGINE_METRICS`; they are read at each scrape."""
        self.registry.register(_EngineFigures(read))

    def loaded(self, model: str, device: str) -> None:
        """Name the model that this worker runs, and its device."""
        self._build.labels("worker", version("stoop"), model, device).set(1)

    def in_flight(self, jobs: int) -> None:
        """Set the number of jobs in flight."""
        self._in_flight.set(jobs)

    def engine_fault(self) -> None:
        """Count a crash or hang of the engine."""
        self._faults.inc()

    def fetched(self, size: int) -> None:
        """Count the bytes of one fetched image."""
        self._fetched.inc(size)

    def fetch_failed(self, code: str) -> None:
        """Count one image that could not be fetched."""
        self._unfetched.labels(code).inc()

    def settled(self, ending: Ending) -> None:
        """Count the end of one delivery."""
        if not ending.ours:
            self._lost.inc()
            return
        result = ending.result
        self._settled((result and result.skill) or "unknown", ending.outcome, ending.code or "").inc()
        if result is not None and result.output is not None:
            self._job(result.skill or "", ending.lane).observe(ending.seconds)
            self._queue(ending.lane).observe(result.metrics.queue_time_ms / 1000)
            self._count_tokens(result, ending.lane)

    def _count_tokens(self, result: Result, lane: str) -> None:
        metrics = result.metrics
        self._tokens("input").inc(metrics.input_tokens)
        self._tokens("output").inc(metrics.output_tokens)
        self._tokens("cached").inc(metrics.cached_tokens)
        self._stage("queue").observe(metrics.queue_time_ms / 1000)
        self._stage("fetch").observe(metrics.fetch_time_ms / 1000)
        self._stage("image").observe(metrics.image_time_ms / 1000)
        self._stage("prefill").observe(metrics.prefill_time_ms / 1000)
        self._stage("decode").observe(metrics.decode_time_ms / 1000)
        if metrics.output_tokens:
            first = metrics.queue_time_ms + metrics.fetch_time_ms + metrics.image_time_ms + metrics.ttft_ms
            self._first_token(result.skill or "", lane).observe(first / 1000)
        if metrics.output_tokens > 1:
            each = metrics.decode_time_ms / (metrics.output_tokens - 1)
            self._each_token(result.skill or "").observe(each / 1000)
