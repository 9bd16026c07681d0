"""Measures the costs of the queue as it gets deeper, and the waits in it.

    python -m benchmarks.queue.depth --depths 1000 10000 100000

Uses a real Redis and the product's own client and broker, without an engine: a worker here only waits and settles. At
each depth, jobs are submitted one by one and in calls of 128, claimed in bursts of 64 and settled. Times are printed
only if every job came once, in order, and left its result. Then it measures the wait of interactive jobs behind a deep
bulk lane, the share of bulk under constant interactive load, and the wait of a small tenant beside one that floods the
lane. Prints tables; --out writes JSON.
"""

import argparse
import asyncio
import json
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.queue.bench import BULK, INTERACTIVE, Bench, ending, new_job, serving
from stoop.demo.embedded import embedded_redis
from stoop_schemas import names
from stoop_worker.jobs.broker import Delivery

__all__ = ["Cost", "main"]

_BURST = 64


@dataclass(frozen=True)
class Cost:
    """The cost of a job with `depth` others queued; rates are jobs a second of one client, CPU is Redis's, per job."""

    depth: int
    single_submits: float
    pipelined_submits: float
    takes_and_settles: float
    submit_cpu_us: float
    pipelined_cpu_us: float
    take_settle_cpu_us: float
    queued_bytes: float
    finished_bytes: float


async def measure_cost(url: str, depth: int, sample: int) -> Cost:
    """Fill the bulk lane to `depth`, then time `sample` more jobs each way."""
    async with Bench(url) as bench:
        empty = await bench.memory()
        expected: list[str] = []
        for start in range(0, depth, 1024):
            expected += await bench.transport.submit([new_job(n) for n in range(start, min(depth, start + 1024))])
        queued_bytes = (await bench.memory() - empty) / depth
        jobs = [new_job(number) for number in range(2 * sample)]

        async def one_by_one() -> None:
            for job in jobs[:sample]:
                expected.extend(await bench.transport.submit([job]))

        async def together() -> None:
            expected.extend(await bench.transport.submit(jobs[sample:]))

        claimed: list[str] = []

        async def take_and_settle() -> None:
            while len(claimed) < sample:
                deliveries = await bench.broker.take(min(_BURST, sample - len(claimed)))
                assert all(await bench.broker.settle([ending(delivery) for delivery in deliveries]))
                claimed.extend(delivery.job_id for delivery in deliveries)

        single, single_cpu = await bench.timed(sample, one_by_one)
        many, many_cpu = await bench.timed(sample, together)
        before = await bench.memory()
        taken, taken_cpu = await bench.timed(sample, take_and_settle)
        # the claimed job's bytes have left the lane, so they are added again
        finished_bytes = (await bench.memory() - before) / sample + queued_bytes
        await _check(bench, expected, claimed)
    return Cost(depth, single, many, taken, single_cpu, many_cpu, taken_cpu, queued_bytes, finished_bytes)


async def _check(bench: Bench, expected: Sequence[str], claimed: Sequence[str]) -> None:
    """End with an error if the queue lost or reordered jobs."""
    if list(claimed) != list(expected[: len(claimed)]):
        raise SystemExit("jobs were not claimed once each and in order, so the times are not valid")
    kept = await bench.redis.exists(*(names.result(job_id) for job_id in claimed))
    left = await bench.redis.xlen(names.lane(BULK))
    if (kept, left) != (len(claimed), len(expected) - len(claimed)):
        raise SystemExit(f"{kept} results of {len(claimed)} and {left} jobs left, so the times are not valid")


async def measure_wait(url: str, bulk: int, arrivals: int) -> dict[str, float]:
    """Submit interactive jobs one after the other while `bulk` jobs wait; return their waits (ms)."""
    async with Bench(url) as bench:
        await bench.transport.submit([new_job(number) for number in range(bulk)])
        waits: list[int] = []
        claimed = asyncio.Event()

        def seen(delivery: Delivery) -> None:
            if delivery.lane == INTERACTIVE:
                waits.append(delivery.claimed_at - delivery.queued_at)
                claimed.set()

        async def arrive() -> None:
            for number in range(arrivals):
                claimed.clear()
                await bench.transport.submit([new_job(number, lane=INTERACTIVE)])
                await claimed.wait()

        await serving(bench, seen, arrive)
    return {"queued": bulk, **_quantiles(waits)}


async def measure_share(url: str, ends: int) -> dict[str, float]:
    """Keep both lanes full, and count the jobs claimed from each."""
    async with Bench(url) as bench:
        for lane in (INTERACTIVE, BULK):
            await bench.transport.submit([new_job(number, lane=lane) for number in range(ends)])
        lanes: list[str] = []
        done = asyncio.Event()

        def seen(delivery: Delivery) -> None:
            lanes.append(delivery.lane)
            if len(lanes) >= ends:
                done.set()

        await serving(bench, seen, done.wait)
    return {"claimed": len(lanes), "bulk_share": lanes.count(BULK) / len(lanes)}


async def measure_tenants(url: str, flood: int, few: int) -> dict[str, float]:
    """Let one tenant flood the lane and another submit a few jobs; return the waits of the latter (ms)."""
    async with Bench(url) as bench:
        await bench.transport.submit([new_job(number, tenant="flood") for number in range(flood)])
        waits: list[int] = []
        done, others = asyncio.Event(), 0
        small: set[str] = set()

        def seen(delivery: Delivery) -> None:
            nonlocal others
            if delivery.job_id not in small:
                others += bool(small)
                return
            waits.append(delivery.claimed_at - delivery.queued_at)
            if len(waits) == few:
                done.set()

        async def arrive() -> None:
            jobs = [new_job(number, tenant="small") for number in range(few)]
            small.update(job.id for job in jobs)
            await bench.transport.submit(jobs)
            await done.wait()

        await serving(bench, seen, arrive)
    return {"flood": flood, "few": few, "flood_claimed_meanwhile": others, **_quantiles(waits)}


def _quantiles(values: Sequence[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {f"p{round(100 * share)}_ms": ordered[int(share * (len(ordered) - 1))] for share in (0.5, 0.95, 1.0)}


async def measure(url: str, depths: Sequence[int], *, sample: int, bulk: int, flood: int) -> dict[str, Any]:
    """Measure all figures, one after the other."""
    return {
        "costs": [asdict(await measure_cost(url, depth, sample)) for depth in depths],
        "waits": [await measure_wait(url, queued, 200) for queued in (0, bulk)],
        "share": await measure_share(url, 1000),
        "tenants": await measure_tenants(url, flood, 100),
    }


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--depths", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--sample", type=int, default=2000, help="jobs that are timed at each depth, each way")
    parser.add_argument("--bulk", type=int, default=50_000, help="bulk jobs that interactive ones wait beside")
    parser.add_argument("--flood", type=int, default=10_000, help="jobs of the tenant that floods the lane")
    parser.add_argument("--out", type=Path, help="file to write the figures to, as JSON")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="stoop-bench-") as folder, embedded_redis(Path(folder) / "redis") as redis:
        if redis.child is None:
            raise SystemExit("this empties the Redis it uses: unset STOOP_REDIS_URL")
        measuring = measure(redis.url, given.depths, sample=given.sample, bulk=given.bulk, flood=given.flood)
        figures = asyncio.run(measuring)
    _print(figures)
    if given.out:
        given.out.write_text(json.dumps(figures, indent=2) + "\n")


def _print(figures: dict[str, Any]) -> None:
    rows = [{name: f"{value:.0f}" for name, value in cost.items()} for cost in figures["costs"]]
    print("  ".join(rows[0]))
    for row in rows:
        print("  ".join(value.rjust(len(name)) for name, value in row.items()))
    for name in ("waits", "share", "tenants"):
        print(f"{name}: {json.dumps(figures[name])}")


if __name__ == "__main__":
    main()
