"""Measures the cost of metrics and of traces in jobs a second through a real queue; the engine answers at once.

    python -m benchmarks.queue.telemetry_cost --rounds 60

Five workers run all the time, each with a lane of its own: without both, without both once more as a control, with
metrics that are scraped each second, and with traces of 1 % and of all jobs too. In each round every worker gets the
same number of jobs, one worker after the other in a random order. A lane is paused while it is filled, so a rate is
the worker's, not the producer's. Ratios compare turns of the same round with those of the first worker; their
intervals are of 95 %, by resampling the rounds. Beside them is the ratio of the CPU time of the worker's front, which
other work on the machine hardly changes.
"""

import argparse
import asyncio
import contextlib
import os
import signal
import socket
import statistics
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random
from typing import Any

from redis.asyncio import Redis

from benchmarks.figures import machine, write_json
from stoop.demo.child_server import ChildServer
from stoop.demo.embedded import embedded_redis
from stoop.operator.redis_operator import RedisOperator
from stoop.redis.transport import RedisTransport
from stoop_schemas import names
from stoop_schemas.job import Job
from stoop_schemas.skill import Settings, Skill

__all__ = ["Interval", "main", "ratio"]

_POLL_SECONDS = 0.002
_TURN_SECONDS = 120.0
_CHUNK = 128
_RESAMPLES = 4000
_WARM_UP = 2  # rounds that are not counted
_SHARE = "OTEL_TRACES_SAMPLER_ARG"


@dataclass(frozen=True, slots=True)
class Interval:
    """A ratio, and the interval of 95 % around it."""

    ratio: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.ratio:.3f} ({self.low:.3f} to {self.high:.3f})"


@dataclass(slots=True)
class _Variant:
    """One worker: its lane, whether it counts, and the share of its jobs that is traced."""

    name: str
    lane: str
    metrics: bool = True
    traced: float | None = None
    port: int | None = None
    pid: int = 0
    rates: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)


def ratio(values: Sequence[float], others: Sequence[float]) -> Interval:
    """Return the median ratio of values in pairs; the interval comes from resampled pairs."""
    found = [value / other for value, other in zip(values, others, strict=True)]
    chance = Random(1)
    medians = sorted(statistics.median(chance.choices(found, k=len(found))) for _ in range(_RESAMPLES))
    low, high = medians[int(0.025 * _RESAMPLES)], medians[int(0.975 * _RESAMPLES)]
    return Interval(statistics.median(found), low, high)


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Measure and print; return the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=300, help="in a turn")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--out", type=Path, help="file for the figures; by default in the folder $OUT")
    arguments = parser.parse_args(argv)
    variants = [
        _Variant("without both", "off", metrics=False),
        _Variant("without both, control", "control", metrics=False),
        _Variant("metrics", "metrics"),
        _Variant("metrics, traces of 1 %", "some", traced=0.01),
        _Variant("metrics, traces of all", "all", traced=1.0),
    ]
    with tempfile.TemporaryDirectory(prefix="stoop-telemetry-") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        redis = stack.enter_context(embedded_redis(folder / "redis"))
        collector = stack.enter_context(_collector())
        for variant in variants:
            stack.enter_context(_worker(variant, folder, redis.url, collector))
        stack.enter_context(_scraping([variant.port for variant in variants if variant.port]))
        asyncio.run(_measure(redis.url, variants, arguments.jobs, arguments.rounds))
    document = {"kind": "telemetry-cost", "machine": machine("cpu"), "jobs": arguments.jobs, "workers": _rows(variants)}
    write_json(document, arguments.out, "telemetry-cost")
    _print(document)
    return document


async def _measure(url: str, variants: Sequence[_Variant], jobs: int, rounds: int) -> None:
    operator, transport, chance = RedisOperator(url), RedisTransport(url), Random(0)
    async with Redis.from_url(url, protocol=2, decode_responses=True) as redis:
        for number in range(rounds + _WARM_UP):
            for variant in chance.sample(variants, len(variants)):
                await operator.pause(variant.lane)
                for first in range(0, jobs, _CHUNK):
                    await transport.submit([_job(variant.lane) for _ in range(first, min(jobs, first + _CHUNK))])
                ended = await _ended(redis, variant.lane) + jobs
                cpu, began = _cpu_seconds(variant.pid), time.perf_counter()
                await operator.resume(variant.lane)
                while await _ended(redis, variant.lane) < ended:
                    if time.perf_counter() - began > _TURN_SECONDS:
                        raise SystemExit(f"{variant.name}: the jobs do not end")
                    await asyncio.sleep(_POLL_SECONDS)
                if number >= _WARM_UP:
                    variant.rates.append(jobs / (time.perf_counter() - began))
                    variant.cpu.append((_cpu_seconds(variant.pid) - cpu) / jobs)
    await operator.close()
    await transport.close()


def _job(lane: str) -> Job:
    settings = Settings(max_tokens=8)
    return Job(id=names.new_id(), skill=Skill.QUERY, question="How many people?", lane=lane, settings=settings)


async def _ended(redis: "Redis[str]", lane: str) -> int:
    return int(await redis.hget(names.totals(), f"ended:{lane}") or 0)


def _cpu_seconds(process: int) -> float:
    """Return the CPU time of all threads of a process, to the nanosecond."""
    spent = 0
    for task in Path(f"/proc/{process}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            spent += int((task / "schedstat").read_text().split()[0])
    return spent / 1e9


@contextlib.contextmanager
def _worker(variant: _Variant, folder: Path, url: str, collector: str) -> Iterator[None]:
    ready = folder / f"{variant.lane}.ready"
    settings = {"redis_url": url, "ready_file": ready, "lanes": variant.lane, "log_level": "warning", "permits": 128}
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "STOOP_"))}
    if variant.metrics:
        variant.port = _free_port()
        settings["metrics_port"] = variant.port
    if variant.traced is not None:
        environment |= {"OTEL_EXPORTER_OTLP_ENDPOINT": collector, "OTEL_TRACES_SAMPLER": "parentbased_traceidratio"}
        environment |= {_SHARE: str(variant.traced), "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    worker = ChildServer(
        name=f"the worker {variant.name}",
        command=[
            *(sys.executable, "-m", "benchmarks.queue.instant_worker"),
            *([] if variant.metrics else ["--without-metrics"]),
        ],
        log=folder / f"{variant.lane}.log",
        environment={**environment, **{f"STOOP_{name.upper()}": str(value) for name, value in settings.items()}},
        answers=lambda pid: ready.exists(),
        start_seconds=60,
    )
    worker.start()
    assert worker.process is not None
    variant.pid = worker.process.pid
    try:
        yield
    finally:
        worker.end(signal.SIGTERM)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@contextlib.contextmanager
def _collector() -> Iterator[str]:
    """Run a collector that takes every span and keeps none; yield its address."""

    class Discard(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Discard)
    with _thread(server.serve_forever):
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
    server.server_close()


@contextlib.contextmanager
def _scraping(ports: Sequence[int]) -> Iterator[None]:
    """Read the metrics of these workers once a second, as Prometheus does."""
    ended = threading.Event()
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def scrape() -> None:
        while not ended.wait(1.0):
            for port in ports:
                with contextlib.suppress(OSError):
                    opener.open(f"http://127.0.0.1:{port}/metrics", timeout=10).read()

    with _thread(scrape):
        yield
        ended.set()


@contextlib.contextmanager
def _thread(target: Callable[[], None]) -> Iterator[None]:
    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    yield
    thread.join()


def _rows(variants: Sequence[_Variant]) -> list[dict[str, Any]]:
    first = variants[0]
    return [
        {
            "name": variant.name,
            "rounds": len(variant.rates),
            "jobs_per_second": statistics.median(variant.rates),
            "rate": asdict(ratio(variant.rates, first.rates)),
            "cpu_ms_per_job": 1e3 * statistics.median(variant.cpu),
            "cpu": asdict(ratio(variant.cpu, first.cpu)),
        }
        for variant in variants
    ]


def _print(document: dict[str, Any]) -> None:
    print(f"{'worker':<24}{'jobs/s':>8}  {'ratio':<26}{'CPU ms a job':>12}  ratio")
    for row in document["workers"]:
        rate, cpu = Interval(**row["rate"]), Interval(**row["cpu"])
        print(f"{row['name']:<24}{row['jobs_per_second']:>8.0f}  {rate!s:<26}{row['cpu_ms_per_job']:>12.3f}  {cpu}")


if __name__ == "__main__":
    main()
