"""States of jobs, as the queue holds them."""

import asyncio
import contextlib
from collections.abc import Awaitable
from typing import Final

from stoop.errors import StoopError, TimedOut
from stoop_schemas.state import State

__all__ = ["read_state", "timed_out"]

_STATE_SECONDS: Final = 2.0


def read_state(state: str | None) -> State | None:
    """Return the state of this name; raise `StoopError` for an unknown name, perhaps a newer worker's."""
    if state is None:
        return None
    try:
        return State(state)
    except ValueError:
        problem = f"the queue holds a state {state[:40]!r} that this client does not know: is a worker newer?"
        raise StoopError(problem) from None


async def timed_out(reading: Awaitable[State | None], job_id: str, seconds: float, *, cancelled: bool) -> TimedOut:
    """Return the error of a caller who has waited for `seconds`; `reading` reads the job's state, if it can."""
    state = None
    with contextlib.suppress(StoopError, TimeoutError):
        async with asyncio.timeout(_STATE_SECONDS):
            state = await reading
    return TimedOut(job_id, seconds, state, cancelled=cancelled)
