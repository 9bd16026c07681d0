"""A queue in memory with the client interface of a bulk run: keeps submitted jobs, and answers by a test's script."""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from stoop.client.build_job import build_job
from stoop.errors import JobFailed, StoopError
from stoop_schemas.failure import Failure, FailureCode
from stoop_schemas.job import Job
from stoop_schemas.result import Metrics, Result
from stoop_schemas.skill import Output
from stoop_schemas.state import State

BROKEN = "broken"
"""An image of this in its address fails."""


class Queue:
    """A `stoop.bulk.port.Client`; `refusals` are raised by the next submissions, `losses` by the next results."""

    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}
        self.runs: Counter[str] = Counter()
        self.calls: list[int] = []
        self.forgotten: list[str] = []
        self.refusals: list[StoopError] = []
        self.losses: list[StoopError] = []
        self.waiting = self.answered = 0
        self.most_waiting = 0
        self.before_answer: Callable[[Job], Awaitable[None]] | None = None

    async def prepare(
        self,
        skill: str,
        image: str | Path | bytes | None = None,
        *,
        settings: Mapping[str, Any] | None = None,
        **fields: Any,
    ) -> Job:
        address = f"s3://uploads/{image.name}" if isinstance(image, Path) else image
        if isinstance(address, bytes):
            address = "s3://uploads/bytes"
        return build_job(skill, settings=settings, image=address, **fields)

    async def submit_many(self, jobs: Sequence[Job]) -> list[str]:
        self.calls.append(len(jobs))
        if self.refusals:
            raise self.refusals.pop(0)
        for job in jobs:
            if job.id not in self.jobs:
                self.jobs[job.id] = job
                self.runs[job.image or ""] += 1
        return [job.id for job in jobs]

    async def forget(self, job_ids: Sequence[str]) -> None:
        self.forgotten += job_ids

    async def result(self, job_id: str, timeout: float | None = None) -> Result:
        self.waiting += 1
        self.most_waiting = max(self.waiting, self.most_waiting)
        try:
            job = self.jobs[job_id]
            if self.before_answer is not None:
                await self.before_answer(job)
            if self.losses:
                raise self.losses.pop(0)
            self.answered += 1
            return _answer(job)
        finally:
            self.waiting -= 1


def _answer(job: Job) -> Result:
    if BROKEN in (job.image or ""):
        failure = Failure.of(FailureCode.IMAGE_UNDECODABLE, "not an image")
        raise JobFailed(failure, Result(id=job.id, status=State.FAILED, skill=job.skill, failure=failure))
    return Result(
        id=job.id,
        status=State.COMPLETED,
        skill=job.skill,
        output=Output(answer="a cat"),
        finish_reason="stop",
        metrics=Metrics(input_tokens=740, output_tokens=3),
        model="tiny",
    )
