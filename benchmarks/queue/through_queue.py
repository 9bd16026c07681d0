"""The same questions through Redis, S3 and a worker on this machine, against the engine alone in the same run.

    python -m benchmarks.through_queue direct --concurrency 64 --requests 600

Writes a random model as a checkpoint folder, measures `benchmarks.run` on it in a process that ends, then starts
Redis, an S3 server and `stoop worker`, and keeps as many jobs in flight. The last lines are a table; with it come the
share of the engine's own rate and the CPU time that the worker's two processes take for a job.
"""

import argparse
import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks.bench import add_flags, photos_of
from benchmarks.engine_run import Photos, Record
from benchmarks.figures import lines, machine, summarise, write_json
from benchmarks.full_size import DTYPES, SIZES
from benchmarks.photos import Format
from benchmarks.processes import cpu_seconds, descendants
from benchmarks.workloads import WORKLOADS, Ask
from producer import AsyncClient
from producer.child_server import ChildServer
from producer.config import ProducerConfig
from producer.embedded import EmbeddedRedis, EmbeddedS3, embedded_redis, embedded_s3
from schemas.job import Job
from worker.engine.request import Caption, Detect, Query

__all__ = ["main"]

_LANE = "bench"
_START_SECONDS = 300.0  # load some gigabytes, compile, capture


def main(words: list[str] | None = None) -> dict[str, Any]:
    """Measure both ways, print, and return what was written."""
    arguments = _parser().parse_args(words)
    workload, load = WORKLOADS[arguments.workload], arguments.concurrency
    with tempfile.TemporaryDirectory(prefix="stoop-through-queue-", dir=arguments.folder) as name:
        folder = Path(name)
        model = _model(arguments, folder)
        direct = _read(arguments.direct or _engine_direct(arguments, model, folder / "direct.json"))
        wanted = 2 * load + max(arguments.requests, 2 * load) + 1
        photos = photos_of(map(workload.ask, range(wanted)), arguments.photos, most=wanted)
        with embedded_redis(folder / "redis") as redis, embedded_s3(folder / "s3") as s3:
            _upload(photos, s3)
            with _worker(arguments, folder, model, redis, s3) as worker:
                run = _Run(_config(redis, s3), map(workload.ask, count()), worker.process.pid if worker.process else 0)
                found = asyncio.run(run.go(load, max(arguments.requests, 2 * load), arguments.seconds))
    (engine,) = direct["figures"]
    document = {
        "kind": "queue",
        "workload": workload.name,
        "model": arguments.model,
        "dtype": arguments.dtype,
        "machine": machine(arguments.device),
        "engine_direct": engine,
        **found,
        "share_of_engine": found["figures"][0]["requests_per_second"] / engine["requests_per_second"],
    }
    write_json(document, arguments.out, f"queue-{workload.name}")
    _print(document)
    return document


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload", choices=WORKLOADS, nargs="?", default="direct")
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--folder", type=Path, help="where the servers and the model's folder go, /dev/shm say")
    parser.add_argument("--direct", type=Path, help="figures of the engine alone, if they have just been measured")
    parser.add_argument("--worker", nargs="*", default=[], metavar="FLAG=VALUE", help="flags of `stoop worker`")
    add_flags(parser)
    return parser


def _model(arguments: argparse.Namespace, folder: Path) -> str:
    """Return the model's folder, which is written where a size was asked for."""
    if arguments.model not in SIZES:
        return str(arguments.model)
    program = [sys.executable, "-m", "benchmarks.full_size", str(folder / "model"), "--size", arguments.model]
    # in a process of its own, for the device's memory is the worker's
    subprocess.run([*program, "--device", arguments.device, "--dtype", arguments.dtype], check=True)
    return str(folder / "model")


def _engine_direct(arguments: argparse.Namespace, model: str, out: Path) -> Path:
    options = {
        "model": model,
        "concurrency": arguments.concurrency,
        "requests": arguments.requests,
        "device": arguments.device,
        "dtype": arguments.dtype,
        "photos": arguments.photos,
        "seconds": arguments.seconds,
        "out": out,
    }
    program = [sys.executable, "-m", "benchmarks.run", arguments.workload]
    program += [word for name, value in options.items() for word in (f"--{name}", str(value))]
    program += ["--engine", *arguments.engine, *(["--on-device"] if arguments.on_device else [])]
    program += ["--precision", arguments.precision] if arguments.precision else []
    subprocess.run(program, check=True)
    return out


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


@contextlib.contextmanager
def _worker(
    arguments: argparse.Namespace, folder: Path, model: str, redis: EmbeddedRedis, s3: EmbeddedS3
) -> Iterator[ChildServer]:
    ready = folder / "worker-is-ready"
    options = {
        "model": model,
        "device": arguments.device,
        "dtype": str(DTYPES[arguments.dtype]).removeprefix("torch."),
        "lanes": _LANE,
        "permits": str(max(128, arguments.concurrency)),
        "ready-file": str(ready),
        "drain-seconds": "1",
        **{name.replace("_", "-"): value for name, value in _pairs([*arguments.engine, *arguments.worker])},
    }
    flags = [word for name, value in options.items() for word in _flag(name, value)]
    worker = ChildServer(
        name="the worker",
        command=[sys.executable, "-m", "producer", "worker", *flags],
        log=folder / "worker.log",
        environment={**os.environ, **s3.environment, "STOOP_REDIS_URL": redis.url, "STOOP_S3_ENDPOINT": s3.endpoint},
        answers=lambda pid: ready.exists(),
        start_seconds=_START_SECONDS,
    )
    try:
        worker.start()
        yield worker
    finally:
        worker.end(signal.SIGTERM)


def _flag(name: str, value: str) -> tuple[str, ...]:
    switches = {"True": f"--{name}", "False": f"--no-{name}"}
    return (switches[value],) if value in switches else (f"--{name}", value)


def _pairs(words: list[str]) -> list[tuple[str, str]]:
    return [(name, value) for name, _, value in (word.partition("=") for word in words)]


def _upload(photos: Photos, s3: EmbeddedS3) -> None:
    store = s3.client()
    with ThreadPoolExecutor(8) as pool:
        for shape, jpegs in photos.items():
            put = [
                pool.submit(store.put_object, Bucket=s3.bucket, Key=_key(shape, number), Body=jpeg)
                for number, jpeg in enumerate(jpegs)
            ]
            for each in put:
                each.result()


def _key(shape: Format, number: int) -> str:
    return f"photos/{shape.width}x{shape.height}/{number}.jpg"


def _config(redis: EmbeddedRedis, s3: EmbeddedS3) -> ProducerConfig:
    return ProducerConfig(redis_url=redis.url, bucket=s3.bucket, s3_path_style=True, lane=_LANE, timeout_seconds=600)


class _Run:
    """One closed loop through the queue; `worker` is the process id of the worker's front."""

    def __init__(self, config: ProducerConfig, asks: Iterator[Ask], worker: int) -> None:
        self._config = config
        self._asks = asks
        self._worker = worker
        self._ended: list[Record] = []
        self._engines: list[int] = []

    async def go(self, load: int, requests: int, seconds: float) -> dict[str, Any]:
        """Let `load` jobs end to warm up, then measure `requests`."""
        self._engines = descendants(self._worker)
        most, until = load + requests, time.perf_counter() + seconds
        async with AsyncClient(self._config) as client, asyncio.TaskGroup() as group:
            for _ in range(load):
                group.create_task(self._keep_asking(client, most, until))
            await self._wait_for(load, until)
            before, began = self._cpu(), self._ended[-1].ended
            await self._wait_for(most, until)
            after, measured = self._cpu(), self._ended[load:most]
        figures = summarise(measured, load, began=began)
        jobs = len(measured)
        return {
            "figures": [asdict(figures)],
            "front_cpu_ms_per_job": 1e3 * (after[0] - before[0]) / jobs,
            "engine_cpu_ms_per_job": 1e3 * (after[1] - before[1]) / jobs,
            "table": lines([figures]),
        }

    async def _keep_asking(self, client: AsyncClient, most: int, until: float) -> None:
        """Keep one job in flight."""
        while len(self._ended) < most and time.perf_counter() < until:
            ask = next(self._asks)
            job = await self._job(client, ask)
            record = Record(arrived=time.perf_counter())
            result = await client.result(await client.submit(job))
            record.ended = time.perf_counter()
            cost = result.metrics
            record.tokens, record.cached_tokens, record.ttft = (
                cost.output_tokens,
                cost.cached_tokens,
                cost.ttft_ms / 1e3,
            )
            if record.tokens != _tokens(ask):
                raise SystemExit(f"{ask} was answered with {record.tokens} tokens")
            self._ended.append(record)

    async def _job(self, client: AsyncClient, ask: Ask) -> Job:
        task = ask.task
        if isinstance(task, Caption):
            fields: dict[str, Any] = {"length": task.length}
        else:
            fields = {"question": task.question} if isinstance(task, Query) else {"object": task.object}
        settings = {"temperature": 0.0, "max_tokens": ask.tokens, "max_objects": ask.objects}
        image = f"s3://{self._config.bucket}/{_key(ask.shape, ask.photo)}"
        return await client.prepare(type(task).__name__.lower(), image, settings=settings, **fields)

    async def _wait_for(self, ended: int, until: float) -> None:
        while len(self._ended) < ended and time.perf_counter() < until:
            await asyncio.sleep(0.002)
        if not self._ended:
            raise SystemExit("no job has ended: give --seconds more")

    def _cpu(self) -> tuple[float, float]:
        """Return the CPU seconds of the front and of the engine."""
        return cpu_seconds([self._worker]), cpu_seconds(self._engines)


def _tokens(ask: Ask) -> int:
    """Return how many tokens, coordinates and sizes the whole answer has."""
    if isinstance(ask.task, Query | Caption):
        return ask.tokens
    return ask.objects * (3 if isinstance(ask.task, Detect) else 2)


def _print(document: dict[str, Any]) -> None:
    print("\n".join(document["table"]))
    direct, queue = document["engine_direct"], document["figures"][0]
    print(
        f"{document['workload']}: {queue['requests_per_second']:.2f} jobs/s through the queue, "
        f"{direct['requests_per_second']:.2f} requests/s of the engine alone: {document['share_of_engine']:.1%}"
    )
    front, engine = document["front_cpu_ms_per_job"], document["engine_cpu_ms_per_job"]
    print(f"worker CPU a job: front {front:.2f} ms, engine {engine:.2f} ms, both {front + engine:.2f} ms")


if __name__ == "__main__":
    main()
