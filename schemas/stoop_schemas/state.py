"""The states of a job; README.md draws the transitions between them."""

from enum import StrEnum
from typing import Final

__all__ = ["TERMINAL", "State"]


class State(StrEnum):
    """The state of a job: the `state` field of its hash and the `status` of its result."""

    QUEUED = "queued"  # in a lane
    RUNNING = "running"  # owned by a worker
    DELAYED = "delayed"  # waiting for its next attempt
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


TERMINAL: Final = frozenset({State.COMPLETED, State.FAILED, State.CANCELLED, State.EXPIRED})
"""A job in one of these states has a result and does not run."""
