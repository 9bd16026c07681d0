"""Every metric of the parent: its workers' metrics with a label for the GPU, and two of its own."""

import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from stoop_worker.gpu_workers.member import LOOPBACK, Member

__all__ = ["MergedMetrics", "fetch", "merge"]

_FETCH_SECONDS = 3.0
_LABEL = "gpu"


class MergedMetrics(Collector):
    """Asks each worker for its metrics when Prometheus asks the parent; a worker that does not answer has none."""

    def __init__(self, members: Sequence[Member], ask: "Callable[[Member, str], bytes | None] | None" = None) -> None:
        self._members = members
        self._ask = ask or fetch

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics; called by Prometheus's client at each scrape."""
        running = GaugeMetricFamily("stoop_gpu_worker_running", "1 while the worker's process runs", labels=[_LABEL])
        restarted = CounterMetricFamily(
            "stoop_gpu_worker_restarts", "Restarts of the worker after a failure", labels=[_LABEL]
        )
        for member in self._members:
            running.add_metric([member.device.name], member.running)
            restarted.add_metric([member.device.name], member.restarted)
        yield from (running, restarted)
        with ThreadPoolExecutor(len(self._members)) as pool:
            answers = pool.map(lambda member: self._ask(member, "/metrics"), self._members)
            texts = {
                member.device.name: answer.decode()
                for member, answer in zip(self._members, answers, strict=True)
                if answer is not None
            }
        yield from merge(texts)


def merge(texts: Mapping[str, str]) -> list[Metric]:
    """Return the metric families of all workers, merged by name; `texts` maps a GPU's name to its worker's metrics."""
    merged: dict[str, Metric] = {}
    for gpu, text in texts.items():
        for family in text_string_to_metric_families(text):
            whole = merged.setdefault(family.name, Metric(family.name, family.documentation, family.type))
            for sample in family.samples:
                whole.add_sample(sample.name, {**sample.labels, _LABEL: gpu}, sample.value)
    return list(merged.values())


def fetch(member: Member, path: str) -> bytes | None:
    """Return a worker's answer at `path` of its metrics port; None without an answer, or for an error."""
    if member.port is None or not member.running:
        return None
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://{LOOPBACK}:{member.port}{path}", timeout=_FETCH_SECONDS) as response:
            body: bytes = response.read()
            return body
    except (OSError, HTTPException):  # the second if it ends in the middle of its answer
        return None
