"""Outputs that a worker has put into the object store, because their jobs allow it (`store_output`)."""

from collections.abc import Awaitable, Callable

import msgspec

from stoop.errors import StoopError
from stoop_schemas.codec import unpack_output
from stoop_schemas.event import FinishedEvent
from stoop_schemas.failure import Rejected
from stoop_schemas.result import Result

__all__ = ["ReadObject", "finished_with_output", "with_output"]

ReadObject = Callable[[str], Awaitable[bytes]]
"""Reads the object at an `s3://` address; raises a `StoopError`."""


async def with_output(result: Result, read: ReadObject | None) -> Result:
    """Return the result with its output, read from the object store if it is there. Raises the errors of `read`."""
    if result.output_address is None or read is None:
        return result
    try:
        output = unpack_output(await read(result.output_address))
    except Rejected as error:
        raise StoopError(f"the output of job {result.id} cannot be read ({error}): is a worker newer?") from error
    return msgspec.structs.replace(result, output=output, output_address=None)


async def finished_with_output(event: FinishedEvent, read: ReadObject | None) -> FinishedEvent:
    """Return the event with the whole result. Raises the errors of `read`."""
    return msgspec.structs.replace(event, result=await with_output(event.result, read))
