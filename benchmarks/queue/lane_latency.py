"""Measures an interactive job's latency on an idle worker, and on one saturated by bulk jobs about large images.

    python -m benchmarks.queue.lane_latency --model demo
    python -m benchmarks.queue.lane_latency --model full --folder /dev/shm

Uses a real Redis, a real S3 server and `stoop worker` on this machine. Interactive jobs are submitted one after the
other, each about its own picture; meanwhile `--bulk` captions of images of `--megapixels` are always in flight. Times
are printed only if the answers are right. With the demo's model, every interactive answer is compared with the truth
about its picture. With random weights, the engine's answers are first compared with plain torch, in a separate process,
and every answer must have the requested length.
"""

import argparse
import asyncio
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.client import client_config
from benchmarks.engine.bench import add_flags
from benchmarks.engine.full_size import SIZES
from benchmarks.engine.photos import Format, make_photos
from benchmarks.figures import Quantiles, machine, write_json
from benchmarks.queue.flood import Flood, flood
from benchmarks.queue.worker import model_folder, pairs, queue_worker
from stoop import AsyncClient
from stoop.config import ProducerConfig
from stoop.demo.burst import DemoJob
from stoop.demo.check import is_right
from stoop.demo.embedded import EmbeddedS3, embedded_redis, embedded_s3
from stoop.demo.pictures import Picture, draw_pictures
from stoop.demo.worker_process import find_model
from stoop_schemas.result import Metrics, Result

__all__ = ["main"]

_WARM_UP = 3
_TOKENS = 8  # of an answer with random weights, which never ends by itself
_PAUSE = 1.0  # mean seconds between interactive jobs, which then meet all phases of a step
_STAGES = ("queue", "fetch", "image", "engine", "prefill", "decode")  # "engine": the wait for a step


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Measure and print; return the figures."""
    arguments = _parser().parse_args(argv)
    if arguments.model == "demo":
        arguments.model = find_model(None)
    if arguments.model in SIZES:
        _check_engine(arguments)
    side = round((arguments.megapixels * 1e6 / 12) ** 0.5)
    photos = make_photos(4, Format(4 * side, 3 * side), arguments.photos)
    pictures = draw_pictures(_WARM_UP + 2 * arguments.asks, seed=5)
    with tempfile.TemporaryDirectory(prefix="stoop-lane-latency-", dir=arguments.folder) as name:
        folder = Path(name)
        flags = {"model": model_folder(arguments, folder), **pairs([*arguments.engine, *arguments.worker])}
        with embedded_redis(folder / "redis") as redis, embedded_s3(folder / "s3") as s3:
            for picture in pictures:
                s3.client().put_object(Bucket=s3.bucket, Key=f"{picture.name}.png", Body=picture.encoded)
            with queue_worker(arguments, folder, (redis, s3), flags):
                run = _Run(
                    client_config(redis, s3, timeout_seconds=1200),
                    s3,
                    photos,
                    pictures,
                    trained=arguments.model not in SIZES,
                )
                found = asyncio.run(run.go(arguments.asks, arguments.bulk, arguments.seconds))
    document = {
        "kind": "lane-latency",
        "machine": machine(arguments.device),
        "megapixels": arguments.megapixels,
        "bulk_in_flight": arguments.bulk,
        **found,
    }
    write_json(document, arguments.out, "lane-latency")
    _print(document)
    return document


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--asks", type=int, default=40, help="interactive jobs on the idle worker, and on the busy one")
    parser.add_argument("--bulk", type=int, default=256, help="bulk jobs in flight")
    parser.add_argument("--megapixels", type=float, default=12.0, help="of each bulk image")
    parser.add_argument("--folder", type=Path, help="where the servers and the model's folder go, for example /dev/shm")
    parser.add_argument("--worker", nargs="*", default=[], metavar="FLAG=VALUE", help="flags of `stoop worker`")
    add_flags(parser)
    return parser


def _check_engine(arguments: argparse.Namespace) -> None:
    program = [sys.executable, "-m", "benchmarks.engine.run", "direct", "--concurrency", "1", "--requests", "4"]
    options = {name: getattr(arguments, name) for name in ("model", "device", "dtype", "photos")}
    program += [word for name, value in options.items() for word in (f"--{name}", str(value))]
    program += ["--on-device"] if arguments.device.startswith("cuda") else []
    subprocess.run([*program, "--out", os.devnull], check=True)


@dataclass(frozen=True, slots=True)
class _Asked:
    """The latency of one interactive job in seconds, and the times that its worker reports."""

    seconds: float
    metrics: Metrics

    @property
    def stages(self) -> dict[str, float]:
        """Milliseconds of each stage; the rest is spent in Redis and in this process."""
        metrics = self.metrics
        waited = metrics.ttft_ms - metrics.prefill_time_ms
        before = (metrics.queue_time_ms, metrics.fetch_time_ms, metrics.image_time_ms, waited)
        spent = (*before, metrics.prefill_time_ms, metrics.decode_time_ms)
        return {**dict(zip(_STAGES, spent, strict=True)), "rest": 1e3 * self.seconds - sum(spent)}


@dataclass(slots=True)
class _Run:
    """One worker, first idle and then busy."""

    config: ProducerConfig
    s3: EmbeddedS3
    photos: list[bytes]
    pictures: list[Picture]
    trained: bool

    async def go(self, asks: int, bulk: int, seconds: float) -> dict[str, Any]:
        async with AsyncClient(self.config) as client:
            await self._ask(client, self.pictures[:_WARM_UP])
            idle = await self._ask(client, self.pictures[_WARM_UP : _WARM_UP + asks])
            with flood(self.config, self.s3, self.photos, jobs=bulk, tokens=4 * _TOKENS) as captions:
                await _settle_in(captions, seconds)
                alone = await _bulk_rate(captions, seconds / 2)
                before, began = captions.ended, time.perf_counter()
                busy = await self._ask(client, self.pictures[_WARM_UP + asks :])
                beside = (captions.ended - before) / (time.perf_counter() - began)
                captions.check()
        idle_times, busy_times = (Quantiles.of([each.seconds for each in asked]) for asked in (idle, busy))
        assert idle_times and busy_times
        return {
            "idle": asdict(idle_times),
            "busy": asdict(busy_times),
            "idle_stages_ms": _stages(idle, median),
            "busy_stages_ms": _stages(busy, median),
            "busy_p95_stages_ms": _stages(busy, _p95),
            "p95_ratio": busy_times.p95 / idle_times.p95,
            "bulk_per_second_alone": alone,
            "bulk_per_second": beside,
        }

    async def _ask(self, client: AsyncClient, pictures: list[Picture]) -> list[_Asked]:
        """Ask about one picture after the other."""
        asked: list[_Asked] = []
        pauses = random.Random(7)
        for picture in pictures:
            errand = DemoJob(
                "query", picture, {"question": "How many shapes are there?"}, truth=str(len(picture.shapes))
            )
            image = f"s3://{self.config.bucket}/{picture.name}.png"
            settings = {"temperature": 0.0, "max_tokens": _TOKENS}
            job = await client.prepare(errand.skill, image, lane="interactive", settings=settings, **errand.fields)
            began = time.perf_counter()
            result = await client.result(await client.submit(job))
            asked.append(_Asked(time.perf_counter() - began, result.metrics))
            self._check(errand, result)
            await asyncio.sleep(pauses.uniform(0, 2 * _PAUSE))
        return asked

    def _check(self, errand: DemoJob, result: Result) -> None:
        right = is_right(errand, result.output) if self.trained else result.metrics.output_tokens == _TOKENS
        if not right:
            raise SystemExit(
                f"{errand.subject} of {errand.picture} was answered with {result}, so the times are not valid"
            )


async def _settle_in(captions: Flood, seconds: float) -> None:
    """Wait until the first bulk job has ended, and a quarter of `seconds` more, until the worker is full."""
    while not captions.ended:
        captions.check()
        await asyncio.sleep(0.1)
    await asyncio.sleep(seconds / 4)


async def _bulk_rate(captions: Flood, seconds: float) -> float:
    """Count bulk jobs for `seconds`, or until the first one has ended if that takes longer."""
    before, began = captions.ended, time.perf_counter()
    await asyncio.sleep(seconds)
    while captions.ended == before:
        await asyncio.sleep(0.1)
    return (captions.ended - before) / (time.perf_counter() - began)


def _stages(asked: list[_Asked], choose: Callable[[list[float]], float]) -> dict[str, float]:
    """Return the median, or another choice, of each stage's times."""
    return {name: choose([each.stages[name] for each in asked]) for name in (*_STAGES, "rest")}


def _p95(times: list[float]) -> float:
    return sorted(times)[round(0.95 * (len(times) - 1))]


def _print(document: dict[str, Any]) -> None:
    print(f"{'interactive, ms':<18}{'p50':>9}{'p95':>9}{'p99':>9}")
    for name in ("idle", "busy"):
        print(f"{name:<18}" + "".join(f"{document[name][each]:>9.0f}" for each in ("p50", "p95", "p99")))
    print(f"{'stages, ms':<18}" + "".join(f"{name:>9}" for name in (*_STAGES, "rest")))
    for name, times in (("idle, median", "idle"), ("busy, median", "busy"), ("busy, p95", "busy_p95")):
        print(f"{name:<18}" + "".join(f"{spent:>9.0f}" for spent in document[f"{times}_stages_ms"].values()))
    print(
        f"p95 is {document['p95_ratio']:.1f} times that of the idle worker; bulk jobs/s: "
        f"{document['bulk_per_second']:.2f} beside them, {document['bulk_per_second_alone']:.2f} without"
    )


if __name__ == "__main__":
    main()
