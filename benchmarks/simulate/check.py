"""Compares the simulation with a real run: Redis, three workers, and an engine that takes a set time for each job.

    python -m benchmarks.simulate.check --loads 0.9 1.2 --seconds 60

The same jobs, with the same times of arrival and of service, go through both. A load is the share of the workers' time
that the jobs ask for; above 1 the queue grows. The age of a job is the time from its submission to its claim, by
Redis's clock. The model gets two times from the machine: how soon a worker claims a job of an empty queue, from a few
jobs before the run, and how long a worker holds a job beyond its answer, in the mean of the run.
"""

import argparse
import asyncio
import json
import tempfile
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from redis.asyncio import Redis

from benchmarks.queue.timed_engine import Service, question
from benchmarks.queue.timed_worker import timed_worker
from benchmarks.simulate.arrivals import Arrival, arrivals, gamma_times, steady
from benchmarks.simulate.model import Fleet, quantile, simulate
from stoop import AsyncClient
from stoop.config import ProducerConfig
from stoop.demo.embedded import embedded_redis
from stoop_schemas import names

__all__ = ["Figures", "main", "measure"]

_WORKERS = 3
_CALIBRATION = 20


@dataclass(frozen=True)
class Figures:
    """Jobs a second from the first arrival to the last end, and ages in seconds."""

    jobs: int
    jobs_per_second: float
    age_p50: float
    age_p95: float


def main() -> None:
    """Run both, and print them side by side."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loads", type=float, nargs="+", default=[0.9, 1.2])
    parser.add_argument("--seconds", type=float, default=60.0, help="time in which jobs arrive")
    parser.add_argument("--service", type=float, default=0.3, help="mean time of an answer, exponentially distributed")
    parser.add_argument("--places", type=int, default=2, help="jobs that a worker holds at a time")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--out", type=Path, help="file to write the figures to, as JSON")
    given = parser.parse_args()
    found = measure(given.loads, given.seconds, given.service, given.places, given.seed)
    _print(found)
    if given.out:
        figures = [{"load": load, "real": asdict(real), "model": asdict(model)} for load, real, model in found]
        given.out.write_text(json.dumps(figures, indent=2) + "\n")


def measure(
    loads: list[float], seconds: float, service: float, places: int, seed: int
) -> list[tuple[float, Figures, Figures]]:
    """Return for each load the figures of the real run and of the simulation."""
    with tempfile.TemporaryDirectory(prefix="stoop-bench-") as name, ExitStack() as stack:
        folder = Path(name)
        redis = stack.enter_context(embedded_redis(folder / "redis"))
        if redis.child is None:
            raise SystemExit("this needs a Redis of its own: unset STOOP_REDIS_URL")
        environment = {"STOOP_REDIS_URL": redis.url, "STOOP_PERMITS": str(places), "STOOP_LANES": "interactive"}
        for number in range(_WORKERS):
            stack.enter_context(timed_worker(folder, f"worker-{number}", Service(service, places), environment))
        found = []
        for load in loads:
            rate = load * _WORKERS * places / service
            jobs = list(arrivals(steady(rate), rate, seconds, gamma_times(service, 1.0, seed), seed))
            found.append((load, *asyncio.run(_both(redis.url, jobs, places))))
        return found


async def _both(url: str, jobs: list[Arrival], places: int) -> tuple[Figures, Figures]:
    async with AsyncClient(ProducerConfig(redis_url=url, timeout_seconds=600)) as client, Redis.from_url(url) as redis:
        pickup = await _pickup(client, redis)
        real, overhead = await _run(client, redis, jobs)
    outcome = simulate(jobs, Fleet(_WORKERS, places, overhead=overhead, pickup=pickup))
    model = Figures(outcome.jobs, outcome.jobs_per_second(), quantile(outcome.ages, 0.5), quantile(outcome.ages, 0.95))
    return real, model


async def _pickup(client: AsyncClient, redis: Redis) -> float:
    """Return the mean seconds to the claim of a job in an empty queue."""
    picked = 0.0
    for _ in range(_CALIBRATION):
        job = await client.prepare("query", question=question(0.1))
        await client.submit_and_wait(job)
        queued, started, _ = await _times(redis, job.id)
        picked += started - queued
    return picked / _CALIBRATION


async def _run(client: AsyncClient, redis: Redis, jobs: list[Arrival]) -> tuple[Figures, float]:
    """Return the figures, and the mean seconds for which a worker held a job beyond its answer."""
    prepared = [await client.prepare("query", question=question(each.service)) for each in jobs]
    loop, answers = asyncio.get_running_loop(), []
    began = loop.time()
    for arrival, job in zip(jobs, prepared, strict=True):
        await asyncio.sleep(began + arrival.at - loop.time())
        answers.append(asyncio.create_task(client.submit_and_wait(job)))
    await asyncio.gather(*answers)
    times = [await _times(redis, job.id) for job in prepared]
    ages = [started - queued for queued, started, _ in times]
    first = min(queued for queued, _, _ in times) - jobs[0].at
    rate = len(jobs) / (max(finished for _, _, finished in times) - first)
    held = sum(finished - started for _, started, finished in times) - sum(each.service for each in jobs)
    return Figures(len(jobs), rate, quantile(ages, 0.5), quantile(ages, 0.95)), max(0.0, held / len(jobs))


async def _times(redis: Redis, job_id: str) -> tuple[float, float, float]:
    """Return when a job was submitted, claimed and settled, in seconds of Redis's clock."""
    found = await redis.hmget(names.job(job_id), "queued_at", "started_at", "finished_at")
    queued, started, finished = (float(each or 0) / 1000 for each in found)
    return queued, started, finished


def _print(found: list[tuple[float, Figures, Figures]]) -> None:
    print(
        f"{'load':>5} {'jobs':>6}   {'jobs/s':>17}   {'age p50 s':>17}   {'age p95 s':>17}   (real, model, difference)"
    )
    for load, real, model in found:
        pairs = ((getattr(real, name), getattr(model, name)) for name in ("jobs_per_second", "age_p50", "age_p95"))
        cells = [f"{one:6.2f} {other:6.2f} {other / one - 1:+.0%}" for one, other in pairs]
        print(f"{load:>5.2f} {real.jobs:>6}   " + "   ".join(f"{cell:>19}" for cell in cells))


if __name__ == "__main__":
    main()
