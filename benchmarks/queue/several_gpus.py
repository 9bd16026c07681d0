"""Measures jobs a second of one worker and of `stoop worker --gpus all` on one queue, then kills one of the workers.

    python -m benchmarks.queue.several_gpus direct --folder /dev/shm

Writes a random model as a checkpoint folder, and starts Redis, an S3 server, and the workers. The same questions are
asked with one GPU and with all, so that the answers can be compared. Jobs in flight are two for each permit of a
worker. On a machine with enough cores, this process, Redis and the S3 server have a quarter of them to themselves, and
each worker has an equal part of the rest. Last, one worker is killed by SIGKILL while it holds jobs: the program fails
unless each job ends once, and those of the killed worker on another one.
"""

import argparse
import asyncio
import contextlib
import itertools
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.engine.bench import add_flags
from benchmarks.engine.photos import LARGE, make_photos
from benchmarks.engine.workloads import WORKLOADS, Ask
from benchmarks.figures import Figures, lines, machine, summarise, write_json
from benchmarks.queue.closed_loop import ClosedLoop, prepare
from benchmarks.queue.flood import distinct
from benchmarks.queue.kill_one import Aftermath, kill_one, live_workers
from benchmarks.queue.processes import cpu_seconds, descendants, on_cores, shares
from benchmarks.queue.worker import model_folder, pairs, queue_worker
from stoop import AsyncClient
from stoop.config import ProducerConfig
from stoop.demo.embedded import EmbeddedRedis, EmbeddedS3, embedded_redis, embedded_s3
from stoop_schemas.job import Job
from stoop_worker.gpu_workers.devices import find_devices

__all__ = ["main"]

_LANE = "bench"
_MOST_DRAWN = 128  # further photos are copies of these with other bytes, so that none is in a worker's cache
_START_SECONDS = 300.0
_LEAST_EQUAL = 0.8  # rounding in other batches changes some of the answers of a random model


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Measure and print; return the figures."""
    arguments = _parser().parse_args(argv)
    devices = [device.visible for device in find_devices(arguments.gpus.split(","))]
    if len(devices) < 2:
        raise SystemExit("this compares one GPU with several: name two or more with --gpus")
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="stoop-several-gpus-", dir=arguments.folder) as name:
        folder = Path(name)
        model = model_folder(arguments, folder)
        photos = make_photos(min(_MOST_DRAWN, arguments.requests), LARGE, arguments.photos)
        own, parts = shares(sorted(os.sched_getaffinity(0)), len(devices))
        with on_cores(own), embedded_redis(folder / "redis") as redis, embedded_s3(folder / "s3") as s3:
            bench = _Bench(arguments, folder, redis, s3, model, parts)
            bench.upload(photos, bench.questions(len(devices)) + 2 * bench.load(len(devices)))
            print(f"{time.monotonic() - began:.0f} s: model, photos and servers are ready", flush=True)
            one, answers, _ = bench.measure(devices[:1], kill=False)
            print(f"{time.monotonic() - began:.0f} s: one GPU is measured", flush=True)
            several, other_answers, aftermath = bench.measure(devices, kill=True)
    document = {
        "kind": "several-gpus",
        "workload": arguments.workload,
        "model": arguments.model,
        "machine": machine(arguments.device),
        "cores": {"load": own, "workers": parts},
        "gpus": len(devices),
        "figures": [asdict(one.figures), asdict(several.figures)],
        "worker_cpu_ms_per_job": [one.cpu_ms, several.cpu_ms],
        "ratio": several.figures.requests_per_second / one.figures.requests_per_second,
        "answers_equal": _share_equal(answers, other_answers),
        "kill": aftermath.document() if aftermath else None,
    }
    write_json(document, arguments.out, "several-gpus")
    _print(document, (one, several), aftermath)
    if document["answers_equal"] < _LEAST_EQUAL or aftermath is None or not aftermath.sound:
        raise SystemExit("the answers differ or the kill had a loss, so the figures are not valid")
    print(f"{time.monotonic() - began:.0f} s: all done")
    return document


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload", choices=WORKLOADS, nargs="?", default="direct")
    parser.add_argument("--gpus", default="all", help="as for `stoop worker`: all, or 0,1")
    parser.add_argument("--permits", type=int, default=64, help="of each worker")
    parser.add_argument("--requests", type=int, default=500, help="measured jobs for each GPU")
    parser.add_argument("--folder", type=Path, help="where the servers and the model's folder go, for example /dev/shm")
    parser.add_argument("--worker", nargs="*", default=[], metavar="FLAG=VALUE", help="flags of `stoop worker`")
    add_flags(parser)
    return parser


@dataclass(frozen=True, slots=True)
class _Rate:
    """Figures of some workers, and the CPU time that they took for a job."""

    figures: Figures
    cpu_ms: float


@dataclass(frozen=True, slots=True)
class _Bench:
    """The servers, the model's folder, and the cores of each worker."""

    arguments: argparse.Namespace
    folder: Path
    redis: EmbeddedRedis
    s3: EmbeddedS3
    model: str
    parts: Sequence[Sequence[int]]

    def load(self, gpus: int) -> int:
        """Return the number of jobs in flight: twice as many as the workers may run."""
        return 2 * gpus * int(self.arguments.permits)

    def questions(self, gpus: int) -> int:
        """Return the questions that a measurement asks, those of its warm-up and its end among them."""
        return 2 * self.load(gpus) + gpus * int(self.arguments.requests)

    def upload(self, photos: list[bytes], count: int) -> None:
        store = self.s3.client()
        with ThreadPoolExecutor(8) as pool:
            for done in [
                pool.submit(store.put_object, Bucket=self.s3.bucket, Key=_key(number), Body=distinct(photo, number))
                for number, photo in zip(range(count), itertools.cycle(photos), strict=False)
            ]:
                done.result()

    def measure(self, devices: list[str], *, kill: bool) -> tuple[_Rate, dict[int, Any], Aftermath | None]:
        """Start a worker for each device, keep jobs in flight, and kill one of the workers at the end."""
        flags = {
            "model": self.model,
            "lanes": _LANE,
            "permits": str(self.arguments.permits),
            "gpus": self.arguments.gpus if len(devices) == len(self.parts) else devices[0],
            **pairs([*self.arguments.engine, *self.arguments.worker]),
        }
        with contextlib.ExitStack() as stack:
            with on_cores([core for part in self.parts[: len(devices)] for core in part]):
                parent = stack.enter_context(
                    queue_worker(self.arguments, self.folder, (self.redis, self.s3), flags)
                ).process
            assert parent is not None
            return asyncio.run(self._run(parent.pid, len(devices), kill=kill))

    async def _run(self, parent: int, gpus: int, *, kill: bool) -> tuple[_Rate, dict[int, Any], Aftermath | None]:
        await self._until_live(gpus)
        workers, asks, load = descendants(parent), self._asks(), self.load(gpus)
        loop = ClosedLoop(self._config, asks, self._image_of, cpu=lambda: (cpu_seconds(workers),))
        found = await loop.go(load, gpus * int(self.arguments.requests), self.arguments.seconds)
        rate = _Rate(summarise(found.records, load, began=found.began), 1e3 * found.cpu[0] / max(1, len(found.records)))

        async def next_job(client: AsyncClient) -> Job:
            ask = next(asks)
            return await prepare(client, ask, self._image_of(ask))

        return rate, loop.answers, await kill_one(self._config, next_job, load=load) if kill else None

    async def _until_live(self, count: int) -> None:
        """Wait until every worker claims jobs."""
        async with asyncio.timeout(_START_SECONDS):
            while len(await live_workers(self.redis.url)) < count:
                await asyncio.sleep(0.05)

    def _asks(self) -> Iterator[Ask]:
        return map(WORKLOADS[self.arguments.workload].ask, itertools.count())

    def _image_of(self, ask: Ask) -> str:
        several = len(self.parts)
        return f"s3://{self.s3.bucket}/{_key(ask.photo % (self.questions(several) + 2 * self.load(several)))}"

    @property
    def _config(self) -> ProducerConfig:
        return ProducerConfig(
            redis_url=self.redis.url, bucket=self.s3.bucket, s3_path_style=True, lane=_LANE, timeout_seconds=600
        )


def _key(number: int) -> str:
    return f"photos/{number}.jpg"


def _share_equal(answers: dict[int, Any], others: dict[int, Any]) -> float:
    both = answers.keys() & others.keys()
    return sum(answers[number] == others[number] for number in both) / max(1, len(both))


def _print(document: dict[str, Any], rates: Sequence[_Rate], aftermath: Aftermath | None) -> None:
    print("\n".join(lines([rate.figures for rate in rates])))
    first, last = (rate.figures.requests_per_second for rate in rates)
    print(f"{document['workload']}: {first:.2f} jobs/s with one GPU, {last:.2f} with {document['gpus']}: ", end="")
    print(f"{document['ratio']:.3f} times; {document['answers_equal']:.1%} of the answers are the same")
    print("worker CPU a job:", " and ".join(f"{rate.cpu_ms:.2f} ms" for rate in rates))
    if aftermath:
        print(
            f"killed process {aftermath.killed} with {aftermath.held} of {aftermath.jobs} jobs: "
            f"{aftermath.lost} lost, {aftermath.twice} ended twice; its jobs ended on {aftermath.held_ended_on}, "
            f"all jobs on {aftermath.ended_on} (process: jobs; 0 is one that started after the kill); "
            f"the last of its jobs {aftermath.recovery_seconds:.1f} s after the kill"
        )


if __name__ == "__main__":
    main()
