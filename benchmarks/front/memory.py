"""Measures the memory that large images take in a worker's front, at its peak and afterwards.

    python -m benchmarks.front.memory --jobs 256 --megapixels 10           # one PNG of 31 MB for all jobs
    python -m benchmarks.front.memory --jobs 130 --megapixels 62 --jpegs   # a JPEG of its own for each job

Uses a real Redis, a real S3 server and the front of a real worker, set up as beside a GPU. Its engine takes
--engine-seconds for a request, so that images pile up. Every answer is compared with Pillow's pixels.
"""

import argparse
import asyncio
import contextlib
import io
import os
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np
from PIL import Image as Pillow

from benchmarks.client import client_config
from benchmarks.figures import machine, write_json
from benchmarks.queue.flood import distinct
from benchmarks.queue.processes import descendants
from stoop import AsyncClient
from stoop.config import ProducerConfig
from stoop.demo.embedded import EmbeddedRedis, EmbeddedS3, embedded_redis, embedded_s3
from stoop_worker.config import read_config
from stoop_worker.logs import configure_logs
from stoop_worker.main import serve

__all__ = ["main"]

_START_SECONDS = 300.0
_AFTERWARDS = 3.0  # seconds after which memory no longer shrinks
_HANG_SECONDS = 4.0  # the front returns unused memory four times in this period
_LANE = "bench"


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Measure and print; return the figures."""
    arguments = _parser().parse_args(argv)
    Pillow.MAX_IMAGE_PIXELS = None
    side = round((arguments.megapixels * 1e6) ** 0.5)
    image = _draw(side, "JPEG" if arguments.jpegs else "PNG")
    expected = _checksum(image)
    keys = [f"image-{number if arguments.jpegs else 0}" for number in range(arguments.jobs)]
    with tempfile.TemporaryDirectory(prefix="stoop-front-memory-", dir=arguments.folder) as name:
        folder = Path(name)
        with embedded_redis(folder / "redis") as redis, embedded_s3(folder / "s3") as s3:
            for number, key in enumerate(dict.fromkeys(keys)):
                body = distinct(image, number) if arguments.jpegs else image
                s3.client().put_object(Bucket=s3.bucket, Key=key, Body=body)
            with _front(folder, redis, s3, arguments.engine_seconds) as front, _Watch(front) as watch:
                asyncio.run(_ask(client_config(redis, s3, lane=_LANE, timeout_seconds=1200), keys, expected))
                time.sleep(_AFTERWARDS)
                found = watch.found()
    document = {"kind": "front-memory", "machine": machine("cpu"), "jobs": arguments.jobs, "bytes": len(image), **found}
    write_json(document, arguments.out, "front-memory")
    print(f"{arguments.jobs} jobs, {'a JPEG each' if arguments.jpegs else 'one PNG'} of {len(image) / 1e6:.1f} MB")
    for each, size in found.items():
        print(f"{each.replace('_', ' '):<28}{size / 1e6:>9.0f} MB")
    return document


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=256)
    parser.add_argument("--megapixels", type=float, default=10.0)
    parser.add_argument("--jpegs", action="store_true", help="a JPEG of its own for each job, not one PNG for all")
    parser.add_argument("--engine-seconds", type=float, default=0.1)
    parser.add_argument("--folder", type=Path, help="where the servers keep their files")
    parser.add_argument("--out", type=Path, help="file for the figures; by default in the folder $OUT")
    return parser


def _draw(side: int, kind: str) -> bytes:
    """Draw noise, which a PNG cannot compress; for a JPEG draw blocks, which compress like a photo."""
    random = np.random.default_rng(3)
    grain = 1 if kind == "PNG" else 16
    pixels = random.integers(0, 256, (side // grain + 1, side // grain + 1, 3), dtype=np.uint8)
    drawn = Pillow.fromarray(pixels).resize((side, side), Pillow.Resampling.NEAREST)
    written = io.BytesIO()
    drawn.save(written, kind)
    return written.getvalue()


def _checksum(image: bytes) -> str:
    with Pillow.open(io.BytesIO(image)) as opened:
        return str(zlib.crc32(np.asarray(opened.convert("RGB")).data))


async def _ask(config: ProducerConfig, keys: list[str], expected: str) -> None:
    async with AsyncClient(config) as client:
        jobs = [await client.prepare("caption", f"s3://{config.bucket}/{key}") for key in keys]
        for job_id in await client.submit_many(jobs):
            result = await client.result(job_id)
            if result.output is None or result.output.caption != expected:
                raise SystemExit(f"a job was answered with {result}, so the figures are not valid")


@contextlib.contextmanager
def _front(folder: Path, redis: EmbeddedRedis, s3: EmbeddedS3, engine_seconds: float) -> Iterator[int]:
    ready = folder / "ready"
    settings = {
        "STOOP_REDIS_URL": redis.url,
        "STOOP_S3_ENDPOINT": s3.endpoint,
        "STOOP_S3_PATH_STYLE": "true",
        "STOOP_LANES": _LANE,
        "STOOP_READY_FILE": str(ready),
        "STOOP_DRAIN_SECONDS": "1",
        "STOOP_HANG_SECONDS": str(_HANG_SECONDS),
        "FRONT_ENGINE_RATE": str(1 / engine_seconds),
    }
    with (folder / "worker.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", "from benchmarks.front.memory import serve_front; serve_front()"],
            env={**os.environ, **s3.environment, **settings},
            stderr=log,
        )
    try:
        until = time.monotonic() + _START_SECONDS
        while not ready.exists():
            if process.poll() is not None or time.monotonic() > until:
                raise SystemExit(f"the worker did not start:\n{(folder / 'worker.log').read_text()}")
            time.sleep(0.05)
        yield process.pid
    finally:
        process.terminate()
        process.wait(timeout=60)


def serve_front() -> None:
    """Serve as a worker whose engine is `benchmarks.front.engine`."""
    config = read_config({"model": "checksums"})
    configure_logs(config.log_level, config.log_format)
    serve(config, program=(sys.executable, "-m", "benchmarks.front.engine"))


@dataclass(slots=True)
class _Memory:
    """Bytes of a front's own memory, and of the files in memory that it shares with its engine."""

    own: int
    shared: int

    @classmethod
    def of(cls, front: int) -> "_Memory":
        return cls(_own(front), _files([front, *descendants(front)]))


class _Watch:
    """Reads a front's memory many times a second."""

    def __init__(self, front: int) -> None:
        self._front = front
        self._before = _Memory.of(front)
        self._peak = _Memory.of(front)
        self._ended = Event()
        self._thread = Thread(target=self._look, daemon=True)

    def __enter__(self) -> "_Watch":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()

    def found(self) -> dict[str, int]:
        after = _Memory.of(self._front)
        return {
            "own_before": self._before.own,
            "own_at_peak": self._peak.own,
            "own_afterwards": after.own,
            "shared_at_peak": self._peak.shared,
            "shared_afterwards": after.shared,
        }

    def _look(self) -> None:
        while not self._ended.wait(0.05):
            now = _Memory.of(self._front)
            self._peak = _Memory(max(self._peak.own, now.own), max(self._peak.shared, now.shared))


def _own(process: int) -> int:
    status = Path(f"/proc/{process}/status").read_text()
    return next(1024 * int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon"))


def _files(processes: list[int]) -> int:
    """Add up the memory of all unnamed files that these processes have open or mapped, each once."""
    sizes: dict[int, int] = {}
    for process in processes:
        for link in [*Path(f"/proc/{process}/fd").glob("*"), *Path(f"/proc/{process}/map_files").glob("*")]:
            with contextlib.suppress(OSError):
                if "memfd:pixels" in str(link.readlink()):
                    facts = link.stat()
                    sizes[facts.st_ino] = 512 * facts.st_blocks
    return sum(sizes.values())


if __name__ == "__main__":
    main()
