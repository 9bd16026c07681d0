"""Measures the CPU time that one job costs the front of a worker, in milliseconds of each of its threads.

    python -m benchmarks.front.run --concurrency 64 --jobs 2000
    python -m benchmarks.front.run --concurrency 64 --jobs 1000 --rate 64
    python -m benchmarks.front.run --concurrency 64 --jobs 1000 --rate 64 --jpegs-on-gpu --together 3
    python -m benchmarks.front.run --concurrency 32 --jobs 150 --count 8 --megapixels 12

Uses a real Redis, a real S3 server and the front of a real worker. In place of the engine, a process answers
with the checksum of the pixels, at once or at a steady `--rate`. Every answer is compared with the checksum of Pillow's
pixels, or with that of the JPEG if a GPU would decode it. Where `perf` can count, the instructions of the front outside
the kernel are shown, which other work on the machine hardly changes.
"""

import argparse
import asyncio
import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from PIL import Image as Pillow

from benchmarks.client import client_config
from benchmarks.engine.photos import LARGE, Format, make_photos
from benchmarks.figures import machine, write_json
from benchmarks.instructions import InstructionCount, can_count, counting
from benchmarks.queue.processes import cpu_seconds, descendants
from stoop import AsyncClient
from stoop.config import ProducerConfig
from stoop.demo.embedded import EmbeddedRedis, EmbeddedS3, embedded_redis, embedded_s3

__all__ = ["main"]

_LANE = "bench"
_START_SECONDS = 300.0
# the work of a front's threads, by their names
_PARTS = {
    "image": "pixels of JPEGs",
    "loop": "S3, Redis, events, the rest",
}


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Measure and print; return the figures."""
    arguments = _parser().parse_args(argv)
    photos = make_photos(arguments.count, _format(arguments.megapixels), arguments.photos)
    with tempfile.TemporaryDirectory(prefix="stoop-front-") as name:
        folder = Path(name)
        with embedded_redis(folder / "redis") as redis, embedded_s3(folder / "s3") as s3:
            store = s3.client()
            for number, photo in enumerate(photos):
                store.put_object(Bucket=s3.bucket, Key=_key(number), Body=photo)
            with _front(folder, redis, s3, _flags(arguments)) as front:
                checksum = _checksum_undecoded if arguments.jpegs_on_gpu else _checksum
                run = _Run(front, list(map(checksum, photos)), client_config(redis, s3, lane=_LANE))
                found = asyncio.run(run.go(arguments.concurrency, arguments.jobs))
    document = {
        "kind": "front",
        "machine": machine("cpu"),
        "concurrency": arguments.concurrency,
        "together": arguments.together,
        "jpegs_on_gpu": arguments.jpegs_on_gpu,
        **found,
    }
    write_json(document, arguments.out, "front")
    _print(document)
    return document


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=2000)
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--rate", type=float, default=0.0, help="answers of the engine a second; 0: it answers at once")
    parser.add_argument("--together", type=int, default=1, help="answers of the engine at a time, with --rate")
    parser.add_argument("--jpegs-on-gpu", action="store_true", help="pass JPEGs on as they are")
    parser.add_argument("--count", type=int, default=100, help="different photos")
    parser.add_argument("--megapixels", type=float, help="of each photo; by default 850 x 600 pixels")
    parser.add_argument("--photos", type=Path, default=Path(tempfile.gettempdir()) / "stoop-photos", help="folder")
    parser.add_argument("--out", type=Path, help="file for the figures; by default in the folder $OUT")
    return parser


def _format(megapixels: float | None) -> Format:
    if megapixels is None:
        return LARGE
    side = round((megapixels * 1e6 / 12) ** 0.5)
    return Format(4 * side, 3 * side)


def _key(number: int) -> str:
    return f"photos/{number}.jpg"


def _checksum(jpeg: bytes) -> str:
    with Pillow.open(io.BytesIO(jpeg)) as photo:
        return str(zlib.crc32(photo.convert("RGB").tobytes()))


def _checksum_undecoded(jpeg: bytes) -> str:
    return str(zlib.crc32(jpeg))


def _flags(arguments: argparse.Namespace) -> dict[str, str]:
    return {
        "FRONT_ENGINE_RATE": str(arguments.rate),
        "FRONT_ENGINE_TOGETHER": str(arguments.together),
        "STOOP_JPEGS_ON_GPU": str(arguments.jpegs_on_gpu).lower(),
    }


@contextlib.contextmanager
def _front(folder: Path, redis: EmbeddedRedis, s3: EmbeddedS3, flags: Mapping[str, str]) -> Iterator["_Front"]:
    ready = folder / "ready"
    settings = {
        "STOOP_REDIS_URL": redis.url,
        "STOOP_S3_ENDPOINT": s3.endpoint,
        "STOOP_S3_PATH_STYLE": "true",
        "STOOP_LANES": _LANE,
        "STOOP_READY_FILE": str(ready),
        "STOOP_DRAIN_SECONDS": "1",
        **flags,
    }
    with (folder / "worker.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.front.worker"],
            env={**os.environ, **s3.environment, **settings},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    try:
        until = time.monotonic() + _START_SECONDS
        while not ready.exists():
            if process.poll() is not None or time.monotonic() > until:
                raise SystemExit(f"the worker did not start:\n{(folder / 'worker.log').read_text()}")
            time.sleep(0.05)
        assert process.stdin is not None
        assert process.stdout is not None
        yield _Front(process.pid, descendants(process.pid), process.stdin, process.stdout)
    finally:
        process.terminate()
        process.communicate(timeout=30)


@dataclass(frozen=True, slots=True)
class _Front:
    """A running front and its processes; it reports the CPU time of its threads on request."""

    process: int
    engines: list[int]
    asked: IO[str]
    reports: IO[str]

    def spent(self) -> dict[str, float]:
        """Return the CPU seconds so far of each part, of the whole process and of the engine's process."""
        self.asked.write("\n")
        self.asked.flush()
        parts: dict[str, float] = json.loads(self.reports.readline())
        return {**parts, "front": cpu_seconds([self.process]), "engine": cpu_seconds(self.engines)}


@dataclass(slots=True)
class _Run:
    """One closed loop of captions; each job is about the next photo."""

    front: _Front
    checksums: list[str]
    config: ProducerConfig
    asked: int = 0
    ended: int = 0

    async def go(self, load: int, jobs: int) -> dict[str, Any]:
        """Warm up with twice `load` jobs, then measure `jobs` jobs."""
        async with AsyncClient(self.config) as client:
            await self._ask(client, load, 2 * load)
            with counting(self.front.process) if can_count() else contextlib.nullcontext(InstructionCount()) as count:
                before, began = self.front.spent(), time.perf_counter()
                await self._ask(client, load, jobs)
                seconds, after = time.perf_counter() - began, self.front.spent()
        cpu_ms = {name: 1e3 * (after[name] - before.get(name, 0.0)) / jobs for name in after}
        figures = {"jobs": jobs, "jobs_per_second": jobs / seconds, "cpu_ms_per_job": cpu_ms}
        return {**figures, "instructions_per_job": count.counted / jobs}

    async def _ask(self, client: AsyncClient, load: int, jobs: int) -> None:
        last = self.asked + jobs

        async def keep_asking() -> None:
            while self.asked < last:
                number = self.asked % len(self.checksums)
                self.asked += 1
                image = f"s3://{self.config.bucket}/{_key(number)}"
                result = await client.result(await client.submit(await client.prepare("caption", image)))
                if result.output is None or result.output.caption != self.checksums[number]:
                    raise SystemExit(f"photo {number} was answered with {result}, so the times are not valid")

        async with asyncio.TaskGroup() as group:
            for _ in range(load):
                group.create_task(keep_asking())


def _print(document: Mapping[str, Any]) -> None:
    spent = dict(document["cpu_ms_per_job"])
    front, engine = spent.pop("front"), spent.pop("engine")
    for name, text in _PARTS.items():
        print(f"{text:<26} {spent.get(name, 0.0):>7.3f}")
    other = sum(cost for name, cost in spent.items() if name not in _PARTS)
    print(f"{'other threads':<26} {other:>7.3f}")
    print(f"{'front, CPU ms a job':<26} {front:>7.2f}")
    if instructions := document["instructions_per_job"]:
        print(f"{'front, instructions a job':<26} {instructions:>11,.0f}")
    print(f"beside it: the engine's process {engine:.2f}; {document['jobs_per_second']:.0f} jobs/s")


if __name__ == "__main__":
    main()
