"""Measures a job's CPU time in the worker if it comes as our own JSON, from Celery, and from Celery with a canvas.

    python -m benchmarks.queue.celery_dialect --jobs 3000

Uses a real Redis and a real worker whose engine is a script that answers at once, so that the figures are the queue's.
The worker is paused while jobs are put into its lane, and then continued. Figures are printed only if every job has its
answer: as a result of ours, as a result in Celery's backend, or as a chord whose body has run. The canvas is the most
expensive one: each job is a part of a chord of a hundred, counted and stored by Celery's own tracer.
Prints a table; --out writes JSON.
"""

import argparse
import asyncio
import json
import os
import signal
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import redis
from celery import Celery, chord
from celery.result import AsyncResult, ResultSet

from stoop import AsyncClient
from stoop.celery import configure, query
from stoop.config import ProducerConfig
from stoop.demo.embedded import embedded_redis
from tests.celery.works import Process, gpu_worker

__all__ = ["Cost", "main"]

_CHORD = 100
_SECONDS = 300.0
_TICKS = os.sysconf("SC_CLK_TCK")
_FIELD_UTIME = 11  # of /proc/PID/stat, counted after the name in parentheses


@dataclass(frozen=True)
class Cost:
    """Medians over the rounds; CPU milliseconds a job of the worker, of its Celery sidecar, and of Redis."""

    kind: str
    jobs: int
    jobs_per_second: float
    worker_ms: float
    sidecar_ms: float
    redis_ms: float


@dataclass(frozen=True)
class Bench:
    """The processes of a measurement."""

    url: str
    redis: "redis.Redis[bytes]"
    worker: Process
    app: Celery

    def sidecar(self) -> int:
        """Return the process id of the worker's Celery sidecar."""
        names = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in self.worker.children}
        return next(pid for pid, name in names.items() if b"stoop_worker.celery" in name)

    def measure(self, kind: str, jobs: int, put: Callable[[int], object], get: Callable[[object, int], None]) -> Cost:
        """Put the jobs while the worker is paused, continue it, and wait for every answer."""
        pids = (self.worker.pid, self.sidecar(), int(self.redis.info("server")["process_id"]))
        os.kill(self.worker.pid, signal.SIGSTOP)
        try:
            sent = put(jobs)
        finally:
            before, began = [_cpu(pid) for pid in pids], time.monotonic()
            os.kill(self.worker.pid, signal.SIGCONT)
        get(sent, jobs)
        seconds = time.monotonic() - began
        spent = [1000 * (_cpu(pid) - was) / jobs for pid, was in zip(pids, before, strict=True)]
        return Cost(kind, jobs, jobs / seconds, *spent)


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=3000, help="a round; whole hundreds")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, help="file to write the figures to, as JSON")
    arguments = parser.parse_args()
    costs = measure(arguments.jobs, arguments.rounds)
    _print(costs)
    if arguments.out:
        arguments.out.write_text(json.dumps([asdict(cost) for cost in costs], indent=2) + "\n")


def measure(jobs: int, rounds: int) -> list[Cost]:
    """Measure each kind of job in turn, `rounds` times."""
    with tempfile.TemporaryDirectory(prefix="stoop-bench-") as name:
        folder = Path(name)
        with embedded_redis(folder / "redis") as server, redis.Redis.from_url(server.url) as client:
            app = configure(Celery("bench", broker=server.url, backend=server.url))
            app.set_default()
            # the lease must outlast the pause
            settings = {"permits": 256, "lease_seconds": 120, "celery": "on", "log_level": "warning"}
            with gpu_worker(folder, "worker", server.url, **settings) as worker:
                bench = Bench(server.url, client, worker, app)
                query.delay(None, "warm").get(timeout=_SECONDS)
                chord([query.si(None, "warm")], query.si(None, "warm")).apply_async().get(timeout=_SECONDS)
                kinds = {
                    "own JSON": (lambda n: asyncio.run(_put_own(bench.url, n)), lambda ids, n: _got_own(bench, ids)),
                    "Celery": (_put_lone, lambda results, n: _got_lone(results, n)),
                    "Celery, in chords": (_put_chords, lambda bodies, n: _got_chords(bodies)),
                }
                found = [
                    [bench.measure(kind, jobs, put, get) for kind, (put, get) in kinds.items()] for _ in range(rounds)
                ]
            app.close()
    return [_median(list(costs)) for costs in zip(*found, strict=True)]


async def _put_own(url: str, jobs: int) -> list[str]:
    async with AsyncClient(ProducerConfig(redis_url=url)) as client:
        return await client.submit_many([await client.prepare("query", question=f"job {n}") for n in range(jobs)])


def _got_own(bench: Bench, ids: object) -> None:
    assert isinstance(ids, list)
    keys, deadline = [f"stoop:{{0}}:result:{one}" for one in ids], time.monotonic() + _SECONDS
    while bench.redis.exists(*keys) < len(keys):
        assert time.monotonic() < deadline, "not every job was answered"
        time.sleep(0.02)


def _put_lone(jobs: int) -> list[AsyncResult]:
    return [query.delay(None, f"job {n}") for n in range(jobs)]


def _got_lone(results: object, jobs: int) -> None:
    assert isinstance(results, list)
    answers = ResultSet(results).join_native(timeout=_SECONDS)
    assert answers == [{"answer": f"job {n}"} for n in range(jobs)]


def _put_chords(jobs: int) -> list[AsyncResult]:
    # the body is one more job of each hundred
    return [
        chord([query.si(None, f"job {n}") for n in range(_CHORD - 1)], query.si(None, "body")).apply_async()
        for _ in range(jobs // _CHORD)
    ]


def _got_chords(bodies: object) -> None:
    assert isinstance(bodies, list)
    assert ResultSet(bodies).join_native(timeout=_SECONDS) == [{"answer": "body"}] * len(bodies)


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[_FIELD_UTIME]) + int(fields[_FIELD_UTIME + 1])) / _TICKS


def _median(costs: list[Cost]) -> Cost:
    figures = ("jobs_per_second", "worker_ms", "sidecar_ms", "redis_ms")
    return Cost(
        costs[0].kind, costs[0].jobs, *(statistics.median(getattr(one, name) for one in costs) for name in figures)
    )


def _print(costs: list[Cost]) -> None:
    print(f"{'':20} {'jobs/s':>8} {'worker ms':>10} {'sidecar ms':>10} {'Redis ms':>10}   (CPU a job)")
    for cost in costs:
        figures = f"{cost.worker_ms:10.3f} {cost.sidecar_ms:10.3f} {cost.redis_ms:10.3f}"
        print(f"{cost.kind:20} {cost.jobs_per_second:8.0f} {figures}")


if __name__ == "__main__":
    main()
