"""Measures the cost of metrics and of traces in jobs a second and in instructions; the engine answers at once.

    python -m benchmarks.queue.telemetry_cost --only workers --jobs 4000 --rounds 10
    python -m benchmarks.queue.telemetry_cost --only gateways --jobs 600 --rounds 20 --export-seconds 1

Six workers run all the time, each with a lane of its own: with metrics that are scraped each second, the same as a
control, without metrics, and with traces of none, of 1 % and of all jobs. In each round every worker gets the same
number of jobs, one worker after the other in a random order. A lane is paused while it is filled, so a rate is the
worker's, not the producer's. A turn's CPU time and instructions include the export of its spans, whose fixed cost is
shared by few jobs if a turn is shorter than the time between two exports. Then gateways take turns in the same way.

Ratios compare turns of the same round with the first row; their intervals are of 95 %, by resampling the rounds. Other
work on the machine changes times, but hardly the instructions of a worker's front or a gateway. `perf` counts these,
outside the kernel; without it only times are shown.
"""

import argparse
import asyncio
import contextlib
import functools
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from redis.asyncio import Redis

from benchmarks.figures import machine, write_json
from benchmarks.gateway.http_client import Connection
from benchmarks.gateway.stack import Stack, running_stack
from benchmarks.instructions import InstructionCount, can_count, counting
from benchmarks.queue.telemetry_workers import (
    SAME_HASHES,
    Collector,
    Worker,
    collecting,
    running_worker,
    scraping,
    traced_by,
)
from stoop import AsyncClient
from stoop.config import ProducerConfig
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
_CALLERS = 32
_RESAMPLES = 4000
_WARM_UP = 1  # rounds that are not counted
_QUESTION = "How many people?"
# the name of each worker, whether it counts, and the share of its jobs that is traced, by its lane
_WORKERS = {
    "metrics": ("metrics", True, None),
    "control": ("metrics, control", True, None),
    "off": ("without both", False, None),
    "none": ("metrics, traces of none", True, 0.0),
    "some": ("metrics, traces of 1 %", True, 0.01),
    "all": ("metrics, traces of all", True, 1.0),
}
_SHARES = {"traces off": None, "traces off, control": None, "traces of none": 0.0, "of 1 %": 0.01, "of all": 1.0}


@dataclass(frozen=True, slots=True)
class Interval:
    """A ratio, and the interval of 95 % around it."""

    ratio: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.ratio:.4f} ({self.low:.4f} to {self.high:.4f})"


@dataclass(slots=True)
class _Turns:
    """The turns of one process: its jobs a second, and the CPU time and the instructions of a job."""

    name: str
    process: int
    take: Callable[[int], Awaitable[None]]
    prepare: Callable[[int], Awaitable[None]] | None = None
    rates: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    instructions: list[float] = field(default_factory=list)


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
    parser.add_argument("--jobs", type=int, default=800, help="in a turn")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--only", choices=["workers", "gateways"], help="measure these alone")
    parser.add_argument("--lanes", nargs="+", choices=list(_WORKERS), default=list(_WORKERS), help="workers to measure")
    parser.add_argument("--export-seconds", type=float, default=5.0, help="between two exports; 5 is usual")
    parser.add_argument("--out", type=Path, help="file for the figures; by default in the folder $OUT")
    arguments = parser.parse_args(argv)
    export = arguments.export_seconds
    document: dict[str, Any] = {
        "kind": "telemetry-cost",
        "machine": machine("cpu"),
        "jobs": arguments.jobs,
        "export_seconds": export,
    }
    for name, measure in (("workers", _workers), ("gateways", _gateways)):
        if arguments.only in (None, name):
            turns = asyncio.run(measure(arguments))
            document[name] = [_row(one, turns[0]) for one in turns]
            _print(name, document[name])
    write_json(document, arguments.out, "telemetry-cost")
    return document


async def _workers(arguments: argparse.Namespace) -> list[_Turns]:
    workers = [Worker(lane, *_WORKERS[lane]) for lane in arguments.lanes]
    with tempfile.TemporaryDirectory(prefix="stoop-telemetry-") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        url = stack.enter_context(embedded_redis(folder / "redis")).url
        collector = stack.enter_context(collecting())
        for worker in workers:
            traced = traced_by(collector.address, worker.traced, arguments.export_seconds)
            stack.enter_context(running_worker(worker, folder, url, traced))
        stack.enter_context(scraping([worker.port for worker in workers if worker.port]))
        async with _Queue(url) as queue:
            for worker in workers:
                await queue.check(worker, collector)
            turns = [queue.turns(worker) for worker in workers]
            await _take(turns, arguments)
    return turns


class _Queue:
    """Fills the lanes of workers, and waits until they are empty."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._operator, self._transport = RedisOperator(url), RedisTransport(url)
        self._redis: Redis[str] = Redis.from_url(url, protocol=2, decode_responses=True)

    async def __aenter__(self) -> "_Queue":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._operator.close()
        await self._transport.close()
        await self._redis.aclose()

    async def check(self, worker: Worker, collector: Collector) -> None:
        """Check the worker's answer and, if it traces all jobs, the arrival of spans."""
        collector.received.clear()
        async with AsyncClient(ProducerConfig(redis_url=self._url, timeout_seconds=60)) as client:
            result = await client.result(await client.submit(_job(worker.lane)))
        if result.output is None or result.output.answer != _QUESTION:
            raise SystemExit(f"{worker.name} answered with {result}, so the figures are not valid")
        if worker.traced == 1.0 and not await asyncio.to_thread(collector.received.wait, 30):
            raise SystemExit(f"{worker.name}: no spans arrived")

    def turns(self, worker: Worker) -> _Turns:
        """Return the turns of a worker, still to be taken."""
        take, prepare = functools.partial(self._drain, worker), functools.partial(self._fill, worker)
        return _Turns(worker.name, worker.pid, take, prepare)

    async def _fill(self, worker: Worker, jobs: int) -> None:
        await self._operator.pause(worker.lane)
        for first in range(0, jobs, _CHUNK):
            await self._transport.submit([_job(worker.lane) for _ in range(first, min(jobs, first + _CHUNK))])

    async def _drain(self, worker: Worker, jobs: int) -> None:
        ended, began = await self._ended(worker) + jobs, time.perf_counter()
        await self._operator.resume(worker.lane)
        while await self._ended(worker) < ended:
            if time.perf_counter() - began > _TURN_SECONDS:
                raise SystemExit(f"{worker.name}: the jobs do not end")
            await asyncio.sleep(_POLL_SECONDS)

    async def _ended(self, worker: Worker) -> int:
        return int(await self._redis.hget(names.totals(), f"ended:{worker.lane}") or 0)


def _job(lane: str) -> Job:
    return Job(id=names.new_id(), skill=Skill.QUERY, question=_QUESTION, lane=lane, settings=Settings(max_tokens=8))


async def _gateways(arguments: argparse.Namespace) -> list[_Turns]:
    with contextlib.ExitStack() as running:
        collector = running.enter_context(collecting())
        turns = []
        for name, share in _SHARES.items():
            traced = traced_by(collector.address, share, arguments.export_seconds)
            stack = running.enter_context(running_stack(variables={**SAME_HASHES, **traced}))
            take = _requests(stack)
            collector.received.clear()
            await take(1)
            if share == 1.0 and not await asyncio.to_thread(collector.received.wait, 30):
                raise SystemExit(f"{name}: no spans arrived")
            turns.append(_Turns(name, stack.gateway_pid, take))
        await _take(turns, arguments)
    return turns


def _requests(stack: Stack) -> Callable[[int], Awaitable[None]]:
    async def take(jobs: int) -> None:
        left = iter(range(jobs))

        async def call() -> None:
            connection = Connection(stack.host, stack.port)
            for _ in left:
                answer = await connection.ask("/v1/query", {"question": _QUESTION, "stream": False})
                if answer.status != 200:
                    raise SystemExit(f"the gateway answered {answer.status}, so the figures are not valid")
            connection.close()

        await asyncio.gather(*(call() for _ in range(min(jobs, _CALLERS))))

    return take


async def _take(turns: Sequence[_Turns], arguments: argparse.Namespace) -> None:
    chance, counts, jobs = Random(0), can_count(), arguments.jobs
    for number in range(arguments.rounds + _WARM_UP):
        for one in chance.sample(turns, len(turns)):
            if one.prepare is not None:
                await one.prepare(jobs)
            with _counting(one.process, counts) as count:
                cpu, began = _cpu_seconds(one.process), time.perf_counter()
                await one.take(jobs)
                seconds = time.perf_counter() - began
                await asyncio.sleep(0.3 + arguments.export_seconds)  # the last export of this turn
                cpu = _cpu_seconds(one.process) - cpu
            if number >= _WARM_UP:
                one.rates.append(jobs / seconds)
                one.cpu.append(cpu / jobs)
                one.instructions.append(count.counted / jobs)


@contextlib.contextmanager
def _counting(process: int, counts: bool) -> Iterator[InstructionCount]:
    if not counts:
        yield InstructionCount()
        return
    with counting(process) as count:
        yield count


def _cpu_seconds(process: int) -> float:
    """Return the CPU time of all threads of a process, to the nanosecond."""
    spent = 0
    for task in Path(f"/proc/{process}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            spent += int((task / "schedstat").read_text().split()[0])
    return spent / 1e9


def _row(one: _Turns, other: _Turns) -> dict[str, Any]:
    row: dict[str, Any] = {"name": one.name, "rounds": len(one.rates)}
    for figure in ("rates", "cpu", "instructions"):
        values = getattr(one, figure)
        if all(values):
            interval = ratio(values, getattr(other, figure))
            row[figure] = {"median": statistics.median(values), **asdict(interval)}
    return row


def _print(kind: str, rows: Sequence[dict[str, Any]]) -> None:
    units = {"rates": ("jobs/s", 1.0), "cpu": ("CPU us a job", 1e6), "instructions": ("instructions a job", 1.0)}
    print(f"{kind}, ratios with their intervals of 95 %")
    for row in rows:
        print(row["name"])
        for figure, (unit, scale) in units.items():
            if figure in row:
                median, *interval = row[figure].values()
                print(f"    {scale * median:>12,.0f} {unit:<20}{Interval(*interval)}")


if __name__ == "__main__":
    main()
