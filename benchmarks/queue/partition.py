"""Measures how many jobs a second one partition of Redis takes, and Redis's CPU time for each, by the size of a burst.

    python -m benchmarks.queue.partition --jobs 20000 --bursts 1 8 64

Uses a real Redis and the product's own client and broker, in one process, without an engine: jobs are submitted a burst
at a call, claimed, reported as started and settled. One process of Python keeps Redis busy only in part, so the figure
that holds elsewhere is the number of jobs for each second of Redis's CPU. Figures are printed only if every job has its
result. Prints a table; --out writes JSON.
"""

import argparse
import asyncio
import json
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import msgspec

from benchmarks.queue.bench import Bench, ending, new_job
from stoop.demo.embedded import embedded_redis
from stoop_schemas import names
from stoop_schemas.codec import pack
from stoop_schemas.event import StartedEvent
from stoop_worker.jobs.broker import Delivery, EventGroup

__all__ = ["Rate", "main", "measure"]


@dataclass(frozen=True)
class Rate:
    """Rates of one size of bursts; `redis_share` is the part of the time in which Redis computed."""

    burst: int
    streamed: bool
    jobs_per_second: float
    redis_us: float
    redis_share: float

    @property
    def jobs_per_core_second(self) -> float:
        """The jobs for each second of Redis's CPU: the most that one partition can take."""
        return 1e6 / self.redis_us


async def measure(url: str, jobs: int, burst: int, *, streamed: bool) -> Rate:
    """Take jobs through the queue, a burst at a time."""
    async with Bench(url) as bench:
        ids: list[str] = []

        async def run() -> None:
            while len(ids) < jobs:
                batch = [msgspec.structs.replace(new_job(n), stream=streamed) for n in range(burst)]
                ids.extend(await bench.transport.submit(batch))
                await _serve(bench, burst)

        rate, redis_us = await bench.timed(jobs, run)
        kept = sum([await bench.redis.exists(*map(names.result, ids[n : n + 1000])) for n in range(0, len(ids), 1000)])
        if kept != len(ids):
            raise SystemExit(f"{kept} results of {len(ids)} jobs, so the times are not valid")
    return Rate(burst, streamed, rate, redis_us, rate * redis_us / 1e6)


async def _serve(bench: Bench, burst: int) -> None:
    deliveries = await bench.broker.take(burst)
    assert len(deliveries) == burst
    assert all(await bench.broker.append([_started(each) for each in deliveries]))
    ends = [ending(replace(each, next_seq=each.next_seq + 1)) for each in deliveries]
    assert all(await bench.broker.settle(ends))


def _started(delivery: Delivery) -> EventGroup:
    event = StartedEvent(id=delivery.job_id, seq=delivery.next_seq, attempt=delivery.attempt)
    return EventGroup(delivery, delivery.next_seq, (pack(event),))


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=20_000, help="jobs of each row")
    parser.add_argument("--bursts", type=int, nargs="+", default=[1, 8, 64], help="jobs in a call, at most 128")
    parser.add_argument("--out", type=Path, help="file to write the figures to, as JSON")
    given = parser.parse_args()
    rates = []
    with tempfile.TemporaryDirectory(prefix="stoop-bench-") as folder, embedded_redis(Path(folder) / "redis") as redis:
        if redis.child is None:
            raise SystemExit("this empties the Redis it uses: unset STOOP_REDIS_URL")
        for burst in given.bursts:
            for streamed in (True, False):
                rates.append(asyncio.run(measure(redis.url, given.jobs, burst, streamed=streamed)))
    print(f"{'burst':>6} {'log':>4} {'jobs/s':>8} {'Redis us':>9} {'jobs a core-second':>19} {'Redis busy':>11}")
    for rate in rates:
        figures = f"{rate.jobs_per_second:>8.0f} {rate.redis_us:>9.1f} {rate.jobs_per_core_second:>19,.0f}"
        print(f"{rate.burst:>6} {'yes' if rate.streamed else 'no':>4} {figures} {rate.redis_share:>11.0%}")
    if given.out:
        given.out.write_text(json.dumps([asdict(rate) for rate in rates], indent=2) + "\n")


if __name__ == "__main__":
    main()
