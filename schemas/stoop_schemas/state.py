"""The life of a job: its states and every transition between them, drawn in README.md."""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

__all__ = ["TERMINAL", "TRANSITIONS", "State"]


class State(StrEnum):
    """The state of a job: the `state` field of its hash and the `status` of its result."""

    QUEUED = "queued"  # in a lane
    RUNNING = "running"  # owned by a worker
    DELAYED = "delayed"  # waiting for its next attempt
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


TRANSITIONS: Final[Mapping[State, frozenset[State]]] = MappingProxyType(
    {
        State.QUEUED: frozenset({State.RUNNING, State.FAILED, State.CANCELLED, State.EXPIRED}),
        State.RUNNING: frozenset(
            {
                State.COMPLETED,
                State.FAILED,
                State.CANCELLED,
                State.EXPIRED,
                State.DELAYED,  # a retryable failure
                State.QUEUED,  # released, or its worker was lost
            }
        ),
        State.DELAYED: frozenset({State.QUEUED, State.CANCELLED, State.EXPIRED}),
        State.COMPLETED: frozenset(),
        State.FAILED: frozenset({State.QUEUED}),  # an operator's redrive
        State.CANCELLED: frozenset(),
        State.EXPIRED: frozenset(),
    }
)
"""From each state, the states it may become."""

TERMINAL: Final = frozenset({State.COMPLETED, State.FAILED, State.CANCELLED, State.EXPIRED})
"""A job in one of these states has a result and does not run."""
