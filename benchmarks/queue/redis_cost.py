"""Measures the cost of one job to Redis: CPU by command and script, and memory by kind of key.

    python -m benchmarks.queue.redis_cost --jobs 1000

Uses a real Redis, a real S3 server and a real worker with an engine that takes a set time. Three kinds of jobs, each
a question about a photo with an answer of 40 words: one that waits for its result, one that streams its answer, and
one of a bulk run, submitted 128 to a call at most. Two more kinds are of a bulk run with answers of 17 KB, a size of
transcripts and vectors: one keeps the answers in Redis, the other in the object store. The engine answers 64 jobs at
a time; a job takes 0.8 s, as a small model does in a full batch. Figures are printed only if every job was answered.

CPU is Redis's own user and system time. The time of a script is from Redis's slow log, in a second run, because the
statistics of commands count all scripts as one. Prints tables; --out writes JSON.
"""

import argparse
import asyncio
import json
import os
import re
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from redis.asyncio import Redis

from benchmarks.queue.bench import BULK, INTERACTIVE
from benchmarks.queue.timed_engine import ANSWER, Service, long_question
from benchmarks.queue.timed_worker import timed_worker
from stoop import AsyncClient
from stoop.client.job_client import JobClient
from stoop.config import ProducerConfig
from stoop.demo.embedded import EmbeddedRedis, EmbeddedS3, embedded_redis, embedded_s3
from stoop.demo.pictures import draw_pictures
from stoop.redis.calls import Script as ProducerScript
from stoop_schemas.event import FinishedEvent
from stoop_schemas.job import Job
from stoop_worker.jobs.redis.client import BROKER_SCRIPTS, Script

__all__ = ["Cost", "main", "measure"]

_SERVICE = Service(seconds=0.8, slots=64)
_IN_FLIGHT = 64
_WINDOW = 256
_FAMILY = re.compile(rb"stoop:\{\d+\}:([a-z]+)")

_LONG = long_question(80)

Answer = Callable[[JobClient, list[Job]], Awaitable[None]]


@dataclass(frozen=True)
class _Kind:
    """Jobs of one kind, and the way in which a client gets their answers."""

    lane: str
    answer: Answer
    stream: bool = False
    question: str = "What do the people do?"
    store_output: bool = False


@dataclass(frozen=True)
class Cost:
    """The average cost of one job to Redis.

    `cpu_us` is all of its CPU time. `script_us` and `command_us` are the execution times of scripts and of commands
    outside of them; reading from sockets and writing to them is `cpu_us` less these. `bytes` is the growth of its
    memory while the job's keys exist, and `key_bytes` the keys' own sizes by family.
    """

    kind: str
    jobs: int
    jobs_per_second: float
    cpu_us: float
    calls: float
    script_us: Mapping[str, float]
    command_us: Mapping[str, float]
    bytes: float
    key_bytes: Mapping[str, float]
    bytes_in: float
    bytes_out: float


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1000, help="jobs of each kind")
    parser.add_argument("--out", type=Path, help="file to write the figures to, as JSON")
    arguments = parser.parse_args()
    costs = measure(arguments.jobs, _SERVICE)
    _print(costs)
    if arguments.out:
        arguments.out.write_text(json.dumps([asdict(cost) for cost in costs], indent=2) + "\n")


def measure(jobs: int, service: Service) -> list[Cost]:
    """Measure each kind of job, one after the other."""
    with tempfile.TemporaryDirectory(prefix="stoop-bench-") as name:
        folder = Path(name)
        with embedded_redis(folder / "redis") as redis, embedded_s3(folder / "s3") as s3:
            if redis.child is None:
                raise SystemExit("this empties the Redis it uses: unset STOOP_REDIS_URL")
            [picture] = draw_pictures(1, seed=1)
            s3.client().put_object(Bucket=s3.bucket, Key="photos/1.png", Body=picture.encoded)
            environment = {
                **s3.environment, "STOOP_REDIS_URL": redis.url, "STOOP_S3_ENDPOINT": s3.endpoint,
                "STOOP_S3_PATH_STYLE": "true", "STOOP_PERMITS": "128", "STOOP_OUTPUT_BUCKET": s3.bucket,
            }  # fmt: skip
            # the client reads outputs from the store
            reading = patch.dict(os.environ, s3.environment)
            with reading, timed_worker(folder, "worker", service, environment):
                return asyncio.run(_measure_kinds(redis, s3, jobs))


async def _measure_kinds(redis: EmbeddedRedis, s3: EmbeddedS3, jobs: int) -> list[Cost]:
    kinds = {
        "waited for": _Kind(INTERACTIVE, _wait_for_each),
        "streamed": _Kind(INTERACTIVE, _stream_each, stream=True),
        "bulk": _Kind(BULK, _gather),
        "bulk, 17 KB": _Kind(BULK, _gather, question=_LONG),
        "bulk, 17 KB in the object store": _Kind(BULK, _gather, question=_LONG, store_output=True),
    }
    config = ProducerConfig(
        redis_url=redis.url, bucket=s3.bucket, s3_endpoint=s3.endpoint, s3_path_style=True, timeout_seconds=600
    )
    costs = []
    async with Redis.from_url(redis.url, protocol=2) as server, AsyncClient(config) as client:
        for name, kind in kinds.items():

            async def run(count: int, kind: _Kind = kind) -> None:
                await kind.answer(client, [await _job(client, s3, kind) for _ in range(count)])

            await run(_IN_FLIGHT)
            costs.append(await _cost(name, server, jobs, run))
    return costs


async def _job(client: AsyncClient, s3: EmbeddedS3, kind: _Kind) -> Job:
    image, asked = f"s3://{s3.bucket}/photos/1.png", {"question": kind.question, "store_output": kind.store_output}
    return await client.prepare("query", image, lane=kind.lane, stream=kind.stream, **asked)


async def _wait_for_each(client: JobClient, jobs: list[Job]) -> None:
    async def ask(job: Job) -> None:
        result = await client.submit_and_wait(job)
        assert result.output is not None
        assert result.output.answer == ANSWER

    await _in_turn(jobs, ask)


async def _stream_each(client: JobClient, jobs: list[Job]) -> None:
    async def ask(job: Job) -> None:
        await client.submit(job)
        last = [event async for event in client.stream(job.id)][-1]
        assert isinstance(last, FinishedEvent)

    await _in_turn(jobs, ask)


async def _in_turn(jobs: list[Job], ask: Callable[[Job], Awaitable[None]]) -> None:
    """Ask for all jobs, with a constant number in flight."""
    left = iter(jobs)

    async def keep_asking() -> None:
        for job in left:
            await ask(job)

    async with asyncio.TaskGroup() as group:
        for _ in range(_IN_FLIGHT):
            group.create_task(keep_asking())


async def _gather(client: JobClient, jobs: list[Job]) -> None:
    ended = 0
    async for _, outcome in client.gather(jobs, window=_WINDOW):
        if isinstance(outcome, Exception):
            raise outcome
        ended += 1
    assert ended == len(jobs)


async def _cost(kind: str, server: Redis, jobs: int, run: Callable[[int], Awaitable[None]]) -> Cost:
    await server.config_set("slowlog-log-slower-than", -1)
    await _empty(server)
    memory, before, began = await _memory(server), await _figures(server), asyncio.get_running_loop().time()
    await run(jobs)
    seconds = asyncio.get_running_loop().time() - began
    after = await _figures(server)
    grown, families = await _memory(server) - memory, await _families(server)
    spent = {name: (after[name] - before[name]) / jobs for name in before}
    script_us, command_us = await _times(server, jobs, run)
    return Cost(
        kind, jobs, jobs / seconds, 1e6 * spent["cpu"], spent["calls"], script_us, command_us, grown / jobs,
        {name: size / jobs for name, size in families.items()}, spent["in"], spent["out"],
    )  # fmt: skip


async def _empty(server: Redis) -> None:
    """Remove the keys of all jobs; those of the queue itself stay, because a worker uses them."""
    async for key in server.scan_iter(match="stoop:*", count=1000):
        if _family(key) in ("job", "result", "log", "idem"):
            await server.delete(key)


async def _memory(server: Redis) -> int:
    info = await server.info("memory")
    return int(info["used_memory"]) - int(info["mem_aof_buffer"]) - int(info["mem_clients_normal"])


async def _figures(server: Redis) -> dict[str, float]:
    cpu, stats = await server.info("cpu"), await server.info("stats")
    return {
        "cpu": float(cpu["used_cpu_user"]) + float(cpu["used_cpu_sys"]),
        "calls": float(stats["total_commands_processed"]),
        "in": float(stats["total_net_input_bytes"]),
        "out": float(stats["total_net_output_bytes"]),
    }


async def _families(server: Redis) -> Counter[str]:
    """Return the bytes of all keys by family; `MEMORY USAGE` counts a key's name and its place in the table too."""
    sizes: Counter[str] = Counter()
    async for key in server.scan_iter(match="stoop:*", count=1000):
        sizes[_family(key)] += int(await server.memory_usage(key, samples=0) or 0)
    return sizes


def _family(key: bytes) -> str:
    found = _FAMILY.match(key)
    return found[1].decode() if found else "others"


async def _times(
    server: Redis, jobs: int, run: Callable[[int], Awaitable[None]]
) -> tuple[dict[str, float], dict[str, float]]:
    """Return the microseconds a job in each script, and in each command outside of scripts."""
    await server.config_set("slowlog-max-len", 10_000_000)
    await server.slowlog_reset()
    await server.config_set("slowlog-log-slower-than", 0)
    await run(jobs)
    await server.config_set("slowlog-log-slower-than", -1)
    names, scripts, commands = _digests(), Counter[str](), Counter[str]()
    async for microseconds, command, first in _logged(server):
        if command in ("EVALSHA", "EVAL"):
            scripts[names.get(first, "others")] += microseconds
        elif command not in ("SLOWLOG", "CONFIG"):
            commands[command] += microseconds
    await server.slowlog_reset()
    return tuple({name: each / jobs for name, each in sums.most_common()} for sums in (scripts, commands))  # type: ignore[return-value]


async def _logged(server: Redis) -> AsyncIterator[tuple[int, str, str]]:
    for entry in await server.execute_command("SLOWLOG GET", 10_000_000):
        if entry["client_address"].startswith(b"?"):
            continue  # within a script
        words = [bytes(word).decode(errors="replace") for word in entry["command"].split(b" ", 2)[:2]]
        yield int(entry["duration"]), words[0].upper(), words[1] if len(words) > 1 else ""


def _digests() -> dict[str, str]:
    own = {Script(*files).digest: name for name, files in BROKER_SCRIPTS.items()}
    return own | {ProducerScript("stoop.redis", name).digest: name for name in ("submit", "cancel", "forget")}


def _print(costs: list[Cost]) -> None:
    for cost in costs:
        print(f"\n{cost.kind}: {cost.jobs} jobs, {cost.jobs_per_second:.0f} a second")
        rate = 1e6 / cost.cpu_us
        print(f"  Redis CPU {cost.cpu_us:.0f} us a job, {cost.calls:.1f} calls, {rate:,.0f} jobs a core-second")
        print(f"  network in {cost.bytes_in:.0f} B, out {cost.bytes_out:.0f} B a job")
        for title, parts in (("scripts, us", cost.script_us), ("commands, us", cost.command_us)):
            print(f"  {title}: " + ", ".join(f"{name} {value:.1f}" for name, value in parts.items() if value >= 0.05))
        sizes: list[tuple[str, Any]] = sorted(cost.key_bytes.items(), key=lambda each: -each[1])
        print(
            f"  memory {cost.bytes:.0f} B a job: "
            + ", ".join(f"{name} {size:.0f}" for name, size in sizes if size >= 1)
        )


if __name__ == "__main__":
    main()
