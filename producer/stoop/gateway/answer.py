"""A plain answer: submit the job, wait for its result while the caller waits, and write it."""

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
from starlette.responses import Response

from stoop.gateway.admitted import AdmittedCall
from stoop.gateway.call import Call
from stoop.gateway.submission import accepted, note_job, submit
from stoop_schemas.job import Job
from stoop_schemas.result import Result

__all__ = ["answer_job", "json_response", "result_of"]


async def answer_job(call: Call, job: Job, write: Callable[[Result], Any]) -> Response:
    """Submit the job, wait for its result, and return `write(result)` as JSON. Raises `StoopError` or `ApiError`."""
    if call.wants_no_wait:
        return accepted(call, await submit(call, job))
    return json_response(call, write(await result_of(call, job)))


async def result_of(call: AdmittedCall, job: Job) -> Result:
    """Submit the job and wait for its result. The job is cancelled if the caller leaves and cannot ask for it again.

    Raises `StoopError` or `ApiError`.
    """
    waiting = call.gateway.client.submit_and_wait(
        job, cancel_on_exit=not call.keeps_job, on_submitted=partial(note_job, call, job)
    )
    result = await call.unless_left(waiting)
    call.spent(result)
    return result


def json_response(call: Call, value: Any, status: int = 200) -> Response:
    """Return the value as JSON, with the call's headers."""
    return Response(msgspec.json.encode(value), status, call.headers, media_type="application/json")
