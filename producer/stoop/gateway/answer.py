"""A plain answer: submit the job, wait for its result while the caller waits, and write it."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

import msgspec
from starlette.responses import Response

from stoop.gateway.admitted import AdmittedCall
from stoop.gateway.call import Call
from stoop.gateway.errors import ApiError
from stoop.gateway.submission import accepted, note_job, submit
from stoop_schemas.job import Job
from stoop_schemas.result import Result

__all__ = ["answer_job", "answer_jobs", "json_response", "result_of"]


async def answer_job(call: Call, job: Job, write: Callable[[Result], Any]) -> Response:
    """Submit the job, wait for its result, and return `write(result)` as JSON. Raises `StoopError` or `ApiError`."""
    if call.wants_no_wait:
        return accepted(call, await submit(call, job))
    return json_response(call, write(await result_of(call, job)))


async def answer_jobs(call: Call, jobs: Sequence[Job], write: Callable[[Sequence[Result]], Any]) -> Response:
    """Do the same for an answer that takes several jobs. If one fails, nothing waits for the others any longer.

    The header `x-stoop-job-id` names all of the jobs, or the one that failed.
    """
    if len(jobs) == 1:
        return await answer_job(call, jobs[0], lambda result: write([result]))
    if call.wants_no_wait:
        message = f"this request takes {len(jobs)} jobs: send less at once, or leave `Prefer: respond-async` out"
        raise ApiError(400, "unsupported_value", message)
    results = await call.unless_left(_results_of(call, jobs))
    call.headers["x-stoop-job-id"] = ", ".join(result.id for result in results)
    return json_response(call, write(results))


async def result_of(call: AdmittedCall, job: Job) -> Result:
    """Submit the job and wait for its result. The job is cancelled if the caller leaves and cannot ask for it again.

    Raises `StoopError` or `ApiError`.
    """
    result = await call.unless_left(_wait(call, job))
    call.spent(result)
    return result


def json_response(call: Call, value: Any, status: int = 200) -> Response:
    """Return the value as JSON, with the call's headers."""
    return Response(msgspec.json.encode(value), status, call.headers, media_type="application/json")


async def _results_of(call: AdmittedCall, jobs: Sequence[Job]) -> list[Result]:
    async def result_of_part(job: Job) -> Result:
        result = await _wait(call, job)
        call.spent(result)  # even if another job fails
        return result

    try:
        async with asyncio.TaskGroup() as group:
            waits = [group.create_task(result_of_part(job)) for job in jobs]
    except ExceptionGroup as errors:
        call.headers.pop("x-stoop-job-id", None)  # it names the job that was submitted last
        raise errors.exceptions[0] from None
    return [wait.result() for wait in waits]


def _wait(call: AdmittedCall, job: Job) -> Coroutine[Any, Any, Result]:
    return call.gateway.client.submit_and_wait(
        job, cancel_on_exit=not call.keeps_job, on_submitted=partial(note_job, call, job)
    )
