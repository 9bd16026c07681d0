"""Outputs that a worker has put into the object store, because their jobs allow it (`store_output`)."""

from collections.abc import Awaitable, Callable

import msgspec

from stoop.errors import OutputGone, OutputUnreadable, UploadFailed
from stoop_schemas.codec import unpack_output
from stoop_schemas.event import Event, FinishedEvent
from stoop_schemas.failure import Rejected
from stoop_schemas.result import Result

__all__ = ["ReadObject", "event_with_output", "with_output"]

ReadObject = Callable[[str], Awaitable[bytes]]
"""Reads the object at an `s3://` address; raises a `StoopError`."""


async def with_output(result: Result, read: ReadObject | None) -> Result:
    """Return the result with its output, read from the object store if it is there.

    Raises `OutputGone` if the object is not there any more, `OutputUnreadable` for an address that is not of this job
    or an output that this version does not know, and the other errors of `read`.
    """
    if result.output_address is None or read is None:
        return result
    _check(result.output_address, result.id)
    try:
        output = unpack_output(await read(result.output_address))
    except UploadFailed as error:
        if error.absent:
            raise OutputGone(result.id) from error
        raise
    except Rejected as error:
        problem = f"the output of job {result.id} cannot be read ({error}): is a worker newer?"
        raise OutputUnreadable(result.id, problem) from error
    return msgspec.structs.replace(result, output=output, output_address=None)


async def event_with_output(event: Event | None, read: ReadObject | None) -> Event | None:
    """Return the event; the event of a finished job holds the whole result. Raises the errors of `with_output`."""
    if not isinstance(event, FinishedEvent):
        return event
    return msgspec.structs.replace(event, result=await with_output(event.result, read))


def _check(address: str, job_id: str) -> None:
    """Raise `OutputUnreadable` unless a worker can have put the output of this job at the address."""
    scheme, _, place = address.partition("://")
    key = place.partition("/")[2]
    if scheme != "s3" or f"/job-{job_id}/" not in f"/{key}":
        raise OutputUnreadable(job_id, f"the result of job {job_id} names an output of another job: it is not read")
