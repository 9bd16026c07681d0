"""States of jobs, as the queue holds them."""

from stoop.errors import StoopError
from stoop_schemas.state import State

__all__ = ["read_state"]


def read_state(state: str | None) -> State | None:
    """Return the state of this name; raise `StoopError` for one that a newer worker may have."""
    if state is None:
        return None
    try:
        return State(state)
    except ValueError:
        problem = f"the queue holds a state {state[:40]!r} that this client does not know: is a worker newer?"
        raise StoopError(problem) from None
