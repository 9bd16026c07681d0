"""One job as the queue stores it, and the jobs that wait in no lane."""

import re
from collections.abc import Mapping
from typing import Final

import msgspec
from starlette.responses import Response

from stoop.gateway.answer import json_response
from stoop.gateway.call import Call
from stoop.gateway.errors import ApiError
from stoop.gateway.pages.letters import LetterView, view_of
from stoop.operator.port import HeldJob

__all__ = ["Attempt", "HeldJobs", "JobRecord", "attempts_of", "job_record", "list_held"]

_MOST_HELD: Final = 20
_MOST_ATTEMPTS: Final = 100
_JOB_CHARACTERS: Final = 20_000
_NOTE: Final = re.compile(r"([0-9]{1,15}) (.*)", re.DOTALL)
_SHOWN: Final = ("state", "lane", "attempt", "crashes", "worker", "queued_at", "started_at", "finished_at", "model")


class Attempt(msgspec.Struct, frozen=True):
    """One run of a job: when a worker claimed it, and when the worker was found dead (Unix ms, null: never)."""

    number: int
    worker: str
    claimed_at: int | None
    lost_at: int | None = None


class JobRecord(msgspec.Struct, frozen=True):
    """A job as the queue stores it: the fields of its record, its attempts, and its dead letter if it has one.

    `job` is the unchanged text of a job that waits or runs; the queue forgets it when the job ends.
    """

    id: str
    record: dict[str, str]
    attempts: list[Attempt]
    letter: LetterView | None
    job: str = ""


class HeldJobs(msgspec.Struct, frozen=True):
    """The first jobs that are delayed or in the quarantine."""

    held: list[HeldJob]


async def job_record(call: Call) -> Response:
    """Answer `GET /v1/jobs/{id}/record`; raise an `ApiError` (404) for a job that the queue does not know."""
    operator = call.gateway.operator
    job_id = call.request.path_params["id"]
    letter = await operator.find(job_id)
    if letter is not None:
        job_id = letter.job_id
    record = await operator.job(job_id)
    if not record and letter is None:
        raise ApiError(404, "job_not_found", "there is no such job, or not any more")
    job = (await operator.packed(job_id))[:_JOB_CHARACTERS].decode(errors="backslashreplace")
    shown = {name: record[name] for name in _SHOWN if name in record}
    view = None if letter is None else view_of(letter)
    return json_response(call, JobRecord(job_id, shown, attempts_of(record), view, job))


async def list_held(call: Call) -> Response:
    """Answer `GET /v1/queue/held`."""
    lanes = [lane["lane"] for lane in (await call.gateway.watch.look()).lanes]
    return json_response(call, HeldJobs(await call.gateway.operator.held(lanes, _MOST_HELD)))


def attempts_of(record: Mapping[str, str]) -> list[Attempt]:
    """Return the attempts in a job's record; its times of a single attempt are the job's own."""
    number = int(record["attempt"]) if re.fullmatch(r"[0-9]{1,9}", record.get("attempt", "")) else 0
    return [_attempt(record, each) for each in range(max(1, number - _MOST_ATTEMPTS + 1), number + 1)]


def _attempt(record: Mapping[str, str], number: int) -> Attempt:
    own = f"{record.get('started_at', '')} {record.get('worker', '')}" if record.get("attempt") == str(number) else ""
    claimed = _NOTE.fullmatch(record.get(f"claimed:{number}", own))
    lost = _NOTE.fullmatch(record.get(f"lost:{number}", ""))
    worker = lost[2] if lost else claimed[2] if claimed else ""
    return Attempt(number, worker, int(claimed[1]) if claimed else None, int(lost[1]) if lost else None)
