"""Measures jobs a second through the queue: the same mixed jobs with one permit and with many, in one run.

    python -m benchmarks.queue.throughput --jobs 200 --permits 1 32

Uses a real Redis, a real S3 server and a real worker on this machine. Times are printed only if every answer of every
run equals that of the first run, because batching must not change answers. Prints a table; --out writes JSON.
"""

import argparse
import asyncio
import json
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec

from benchmarks.client import client_config
from stoop import AsyncClient
from stoop.config import ProducerConfig
from stoop.demo.burst import DemoJob, plan_burst
from stoop.demo.embedded import embedded_redis, embedded_s3
from stoop.demo.pictures import draw_pictures
from stoop.demo.worker_process import LANE, find_model, running_worker
from stoop_schemas.result import Result
from stoop_schemas.skill import Output

__all__ = ["Run", "main"]

_GREEDY = {"temperature": 0.0, "max_tokens": 32, "max_objects": 8}
_TOLERANCE = 2e-3
"""Fractions of the image: a coordinate may move by a bin if two bins are almost equally likely."""


@dataclass(frozen=True)
class Run:
    """The figures of one number of permits; `jobs_per_second` from the first submission to the last result."""

    permits: int
    jobs: int
    seconds: float
    jobs_per_second: float
    p50_ms: float
    p95_ms: float


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--permits", type=int, nargs="+", default=[1, 32])
    parser.add_argument("--images", type=int, default=8)
    parser.add_argument("--model", help="folder of the model; by default the demo's")
    parser.add_argument("--out", type=Path, help="file to write the figures to, as JSON")
    arguments = parser.parse_args()
    runs = measure(arguments.jobs, arguments.permits, images=arguments.images, model=find_model(arguments.model))
    _print(runs)
    if arguments.out:
        arguments.out.write_text(json.dumps([asdict(run) for run in runs], indent=2) + "\n")


def measure(jobs: int, permits: list[int], *, images: int, model: str) -> list[Run]:
    """Run the same jobs with each number of permits, each on its own worker; raise if answers differ."""
    pictures = draw_pictures(images, seed=11)
    demo_jobs = plan_burst(pictures)
    planned = [demo_jobs[number % len(demo_jobs)] for number in range(jobs)]
    runs: list[Run] = []
    expected: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="stoop-bench-") as name:
        folder = Path(name)
        with embedded_redis(folder / "redis") as redis, embedded_s3(folder / "s3") as s3:
            for picture in pictures:
                s3.client().put_object(Bucket=s3.bucket, Key=f"{picture.name}.png", Body=picture.encoded)
            for number in permits:
                with running_worker(folder, model, redis, s3, {"permits": str(number)}):
                    run, results = asyncio.run(
                        _run(planned, number, client_config(redis, s3, lane=LANE, timeout_seconds=1800))
                    )
                _check(expected or results, results)
                expected = expected or results
                runs.append(run)
    return runs


async def _run(demo_jobs: list[DemoJob], permits: int, config: ProducerConfig) -> tuple[Run, list[Result]]:
    async with AsyncClient(config) as client:
        jobs = []
        for demo_job in demo_jobs:
            image = f"s3://{config.bucket}/{demo_job.picture.name}.png" if demo_job.picture else None
            jobs.append(await client.prepare(demo_job.skill, image, settings=_GREEDY, **demo_job.fields))
        ended: list[float] = []

        async def follow(job_id: str) -> Result:
            result = await client.result(job_id)
            ended.append(time.perf_counter() - began)
            return result

        began = time.perf_counter()
        await client.submit_many(jobs)
        results = await asyncio.gather(*(follow(job.id) for job in jobs))
    ended.sort()
    rate = len(jobs) / ended[-1]
    quantiles = [1000 * ended[int(share * (len(ended) - 1))] for share in (0.5, 0.95)]
    return Run(permits, len(jobs), ended[-1], rate, *quantiles), results


def _check(expected: list[Result], results: list[Result]) -> None:
    for number, (first, other) in enumerate(zip(expected, results, strict=True)):
        assert first.output is not None, f"job {number} did not complete"
        assert other.output is not None, f"job {number} did not complete"
        if not _same(first.output, other.output):
            raise SystemExit(
                f"job {number}: the answers differ, so the times are not valid:\n{first.output}\n{other.output}"
            )


def _same(first: Output, other: Output) -> bool:
    places = [_places(output) for output in (first, other)]
    return (first.answer, first.caption) == (other.answer, other.caption) and (
        len(places[0]) == len(places[1]) and all(abs(one - two) <= _TOLERANCE for one, two in zip(*places, strict=True))
    )


def _places(output: Output) -> list[float]:
    found = [*(output.objects or ()), *(output.points or ())]
    return [value for place in found for value in msgspec.structs.astuple(place)]


def _print(runs: list[Run]) -> None:
    print(f"{'permits':>8} {'jobs':>6} {'seconds':>8} {'jobs/s':>8} {'ratio':>6} {'p50 ms':>8} {'p95 ms':>8}")
    for run in runs:
        ratio = run.jobs_per_second / runs[0].jobs_per_second
        print(
            f"{run.permits:>8} {run.jobs:>6} {run.seconds:>8.2f} {run.jobs_per_second:>8.2f} {ratio:>6.2f}"
            f" {run.p50_ms:>8.0f} {run.p95_ms:>8.0f}"
        )


if __name__ == "__main__":
    main()
