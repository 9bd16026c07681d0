"""The run of one row: its job is made and submitted, and its result becomes a line."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from stoop.bulk.output.line import Line, answered, failed, unanswered
from stoop.bulk.port import Client
from stoop.bulk.row import Ask, Row, grouped, identified, in_its_field
from stoop.client.build_job import build_job
from stoop.client.outage import Retrying
from stoop.client.submission import Submitter
from stoop.errors import (
    AudioUnreadable,
    IdempotencyConflict,
    ImageUnreadable,
    InvalidJob,
    JobCancelled,
    JobExpired,
    JobFailed,
    NotFound,
    OutputGone,
    OutputUnreadable,
    StoopError,
    TimedOut,
)
from stoop_schemas.chat_images import with_addresses
from stoop_schemas.failure import Failure, FailureCode
from stoop_schemas.job import Job
from stoop_schemas.result import Result
from stoop_schemas.skill import Skill
from stoop_schemas.skills import skills, takers_of
from stoop_schemas.state import State

__all__ = ["RowRun", "check_row", "make_job", "run_job"]

_LOOK_SECONDS: Final = 600.0
"""A job without an answer for so long is submitted again, in case the queue has lost it."""

_ANY_ADDRESS: Final = "s3://bucket/key"
_ENDS: Final = (
    InvalidJob,
    IdempotencyConflict,
    JobFailed,
    JobCancelled,
    JobExpired,
    OutputGone,
    OutputUnreadable,
)
"""The errors that end one row, and not the run."""
_UNANSWERED: Final[dict[type[StoopError], State]] = {JobCancelled: State.CANCELLED, JobExpired: State.EXPIRED}


@dataclass(frozen=True, slots=True)
class RowRun:
    """Runs rows of one session; `run` is the random name of the run, from which the jobs' ids are made.

    `uploads` bounds the images in memory: acquire it for a row whose image is local, before `prepare`, which releases
    it. `queue` and `store` wait for an unreachable queue and object store.
    """

    client: Client
    submitter: Submitter
    ask: Ask
    lane: str
    run: str
    queue: Retrying
    store: Retrying
    uploads: asyncio.Semaphore

    async def prepare(self, row: Row, tries: int = 0) -> Job | list[Line]:
        """Upload the row's image and return its job, or the lines of a row that cannot become a job.

        Raises `QueueUnavailable` or `UploadFailed` when one of them stays away, `ConfigError`, or `Stopped`.
        """
        try:
            if row.problem is not None:
                return _failed(row, row.problem)
            job = await self.store.run(lambda: make_job(self.client, row, self.ask, self.lane))
            return identified(job, row, self.run, tries)
        except ImageUnreadable as error:
            return _failed(row, Failure.of(_code(row), str(error)))
        except AudioUnreadable as error:
            return _failed(row, Failure.of(FailureCode.AUDIO_UNDECODABLE, str(error)))
        except InvalidJob as error:
            return _failed(row, error.failure)
        finally:
            if row.is_local:
                self.uploads.release()

    async def finish(self, row: Row, job: Job, tries: int = 0) -> list[Line]:
        """Submit the job, wait for its end, and return the row's line, or those of its members.

        Raises `QueueUnavailable` when the queue stays away, and `Stopped` if the run ended before the job was
        submitted.
        """
        try:
            return answered(row, job, await run_job(self.client, self.submitter, self.queue, job))
        except _ENDS as error:
            if len(row.members) > 1 and _is_of_one_member(error):
                return await self._finish_halves(row, tries)
            return [_unanswered(part, job, error) for part in row.parts]

    async def _finish_halves(self, row: Row, tries: int) -> list[Line]:
        """Run a group again in two halves, until only the member that the worker refuses is left."""
        half, lines = len(row.members) // 2, []
        for members in (row.members[:half], row.members[half:]):
            part = grouped(members)
            prepared = await self.prepare(part, tries)
            lines += prepared if isinstance(prepared, list) else await self.finish(part, prepared, tries)
        return lines


async def run_job(client: Client, submitter: Submitter, queue: Retrying, job: Job) -> Result:
    """Submit the job, and wait for its result however long it takes; a job that the queue has lost is submitted again.

    Raises `InvalidJob`, `IdempotencyConflict`, `JobFailed`, `JobCancelled`, `JobExpired`, `OutputGone`,
    `OutputUnreadable` or `QueueUnavailable`.
    """
    while True:
        await submitter.submit(job)
        try:
            return await queue.run(lambda: client.result(job.id, _LOOK_SECONDS))
        except OutputGone:
            raise  # the queue knows the job, and would not run it again
        except (TimedOut, NotFound):
            continue


async def make_job(client: Client, row: Row, ask: Ask, lane: str) -> Job:
    """Make the row's job, of its own fields before those of the command line. Raises a `StoopError`."""
    skill, fields = _asked(row, ask)
    given = {**in_its_field(skill, row.image), **fields}
    return await client.prepare(skill, settings={**ask.settings, **row.settings}, **given, lane=lane)


def check_row(row: Row, ask: Ask) -> None:
    """Raise `InvalidJob` if no job can be made of the row. Of its image it checks only an address in a store."""
    if row.problem is not None:
        raise InvalidJob(row.problem)
    skill, fields = _asked(row, ask)
    address = row.image if isinstance(row.image, str) and row.image.startswith("s3://") else _ANY_ADDRESS
    image = None if row.image is None else address
    if fields.get("messages"):
        known = [each if isinstance(each, str) and each.startswith("s3://") else _ANY_ADDRESS for each in row.images]
        fields = {**fields, "messages": with_addresses(fields["messages"], known)}
    build_job(skill, settings={**ask.settings, **row.settings}, **{**in_its_field(skill, image), **fields})


def _asked(row: Row, ask: Ask) -> tuple[str, Mapping[str, Any]]:
    skill = row.skill or ask.skill
    if skill is None:
        raise InvalidJob(Failure.of(FailureCode.MALFORMED, "the row names no skill: give --skill"))
    if row.image is None and skill == Skill.QUERY and not row.fields.get("question"):
        raise InvalidJob(Failure.of(FailureCode.MALFORMED, "the row has neither an image nor a question of its own"))
    return skill, {**_fitting(skill, ask.fields), **row.fields}


def _fitting(skill: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the command line's fields that this skill takes, because a file may have rows of several skills."""
    if skill not in skills():
        return dict(fields)  # which is refused with the row
    return {name: value for name, value in fields.items() if _fits(skill, name)}


def _fits(skill: str, field: str) -> bool:
    takers = takers_of(field)
    return not takers or skill in takers


def _failed(row: Row, failure: Failure) -> list[Line]:
    return [failed(part, failure) for part in row.parts]


def _is_of_one_member(error: StoopError) -> bool:
    """Return whether one text of a group may have caused the failure; most others concern the whole job."""
    return isinstance(error, JobFailed) and error.failure.code is FailureCode.CONTEXT_OVERFLOW


def _unanswered(row: Row, job: Job, error: StoopError) -> Line:
    if isinstance(error, JobFailed):
        return unanswered(row, job, error.result)
    if isinstance(error, InvalidJob):
        return failed(row, error.failure, job)
    if isinstance(error, IdempotencyConflict):
        return failed(row, Failure.of(FailureCode.INVALID_ARGUMENT, str(error)), job)
    if isinstance(error, OutputGone):
        return failed(row, Failure.of(FailureCode.STORAGE_UNAVAILABLE, str(error)), job)
    if isinstance(error, OutputUnreadable):
        return failed(row, Failure.of(FailureCode.INTERNAL, str(error)), job)
    return unanswered(row, job, Result(id=job.id, status=_UNANSWERED[type(error)]))


def _code(row: Row) -> FailureCode:
    try:
        there = all(Path(image).exists() for image in row.images if isinstance(image, Path))
    except OSError:  # such a name no file can have
        there = False
    return FailureCode.IMAGE_UNDECODABLE if there else FailureCode.IMAGE_NOT_FOUND
