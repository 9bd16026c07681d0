"""Runs one bulk job over synthetic rows and a queue in memory, in its own process; prints seconds and peak memory.

    python -m benchmarks.bulk.memory --rows 1000000 --folder /tmp/bulk

The rows are lines of a real file; the client and the output are the product's. Only Redis and the worker are missing.
Peak memory is the process's own, as counted by the kernel.
"""

import argparse
import asyncio
import json
import os
import resource
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from rich.console import Console

from stoop.bulk.output.output_folder import Identity
from stoop.bulk.row import Ask
from stoop.bulk.session import SessionPlan, run_session
from stoop.bulk.sources.jsonl import JsonLines
from stoop.client.async_client import AsyncClient
from stoop.config import ProducerConfig
from stoop_schemas.codec import pack
from stoop_schemas.failure import Failure, FailureCode
from stoop_schemas.job import Job
from stoop_schemas.result import Metrics, Result
from stoop_schemas.skill import Output
from stoop_schemas.state import State
from stoop_schemas.worker import WorkerRecord

__all__ = ["MemoryQueue", "main"]

_BAD_EVERY = 100


class MemoryQueue:
    """A `Transport` in which every job ends as soon as it is submitted; a result can be read once."""

    def __init__(self) -> None:
        self._results: dict[str, bytes] = {}
        self._count = 0

    async def submit(self, jobs: Sequence[Job]) -> list[str]:
        for job in jobs:
            self._count += 1
            self._results[job.id] = pack(_answer(job, bad=self._count % _BAD_EVERY == 0))
        return [job.id for job in jobs]

    async def result(self, job_id: str) -> bytes | None:
        return self._results.pop(job_id)

    async def state(self, job_id: str) -> str | None:
        return None

    async def cancel(self, job_id: str) -> str | None:
        return None

    async def log(self, job_id: str, after: int = -1) -> list[bytes]:
        return []

    @asynccontextmanager
    async def subscribe(self, job_id: str) -> AsyncIterator[AsyncIterator[bytes | None]]:
        async def never() -> AsyncIterator[bytes | None]:
            await asyncio.Event().wait()
            yield None

        yield never()

    async def workers(self, partition: int = 0) -> list[WorkerRecord]:
        return [WorkerRecord(lanes=("bulk",))]

    async def close(self) -> None:
        return


def main() -> None:
    """Run, and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    arguments = parser.parse_args()
    source = arguments.folder / f"rows-{arguments.rows}.jsonl"
    if not source.exists():
        write_rows(source, arguments.rows)
    began = time.monotonic()
    summary = asyncio.run(_run(source, arguments.folder / f"out-{arguments.rows}"))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    figures = {"rows": arguments.rows, "completed": summary[0], "failed": summary[1], "peak_mb": round(peak / 1024, 1)}
    print(json.dumps(figures | {"seconds": round(time.monotonic() - began, 2)}))


def write_rows(path: Path, rows: int) -> None:
    """Write a file of `rows` lines in Moondream's batch format."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        for number in range(rows):
            line = {"id": f"photo-{number}", "skill": "query", "image": f"s3://photos/2026/{number:08}.jpg"}
            file.write(json.dumps({**line, "question": "How many people are there?"}) + "\n")


async def _run(source: Path, folder: Path) -> tuple[int, int]:
    rows = JsonLines(source)
    plan = SessionPlan(rows, Ask(), "bulk", folder, Identity(rows.facts, {"lane": "bulk"}))
    async with AsyncClient(ProducerConfig(), transport=MemoryQueue()) as client:
        summary = await run_session(plan, client, Console(stderr=True), every=10.0)
    return summary.completed, summary.failed


def _answer(job: Job, *, bad: bool) -> Result:
    if bad:
        failure = Failure.of(FailureCode.IMAGE_UNDECODABLE, "the image is truncated")
        return Result(id=job.id, status=State.FAILED, skill=job.skill, failure=failure, worker="w1")
    return Result(
        id=job.id,
        status=State.COMPLETED,
        skill=job.skill,
        output=Output(answer="There are three people, and a dog."),
        finish_reason="stop",
        metrics=Metrics(input_tokens=742, output_tokens=9),
        worker="w1",
        model="vikhyatk/moondream2",
        custom_id=job.custom_id,
    )


if __name__ == "__main__":
    # loaded by a real run too, so that figures are comparable
    os.environ.setdefault("STOOP_REDIS_URL", "redis://127.0.0.1:1")
    main()
