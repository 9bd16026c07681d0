"""The Celery dialect as both sides know it; this module needs neither Celery nor kombu.

A task `stoop.<skill>` in a queue `stoop.<lane>` is a job of that lane. Its entry has the field `m` instead of `j`: the
message as kombu writes it, JSON. The task's id is also the job's id, in partition 0.
"""

import re
from typing import Final

from stoop_schemas import names
from stoop_schemas.job import ID_LIMIT, NAME_PATTERN

__all__ = [
    "FIELD",
    "OPTIONS",
    "ROUTES",
    "TRANSPORT",
    "SkillFailed",
    "lane_of",
    "queue",
    "result_key",
    "skill_of",
    "task",
]

FIELD: Final = "m"
"""The field of an entry that holds a Celery message."""

TRANSPORT: Final = "stoop.redis.celery_transport:Transport"
"""The `broker_transport` of a Celery application that sends to these queues."""

OPTIONS: Final = (
    "image",
    "question",
    "object",
    "length",
    "reasoning",
    "spatial_refs",
    "messages",
    "date",
    "input",
    "prompt_name",
    "kinds",
    "dimensions",
    "query",
    "documents",
    "truncate",
    "audio",
    "language",
    "prompt",
    "timestamps",
    "vad",
    "parallel",
    "settings",
    "stream",
    "deadline",
    "max_attempts",
    "custom_id",
    "metadata",
    "tenant",
    "traceparent",
    "model",
)
"""The fields of a job that a task's keyword arguments may give."""

_PREFIX: Final = "stoop."
ROUTES: Final = {f"{_PREFIX}*": {"queue": f"{_PREFIX}{names.DEFAULT_LANES[0]}"}}
"""Celery's `task_routes` of our tasks, for senders that name no queue."""

_LANE: Final = re.compile(NAME_PATTERN)


class SkillFailed(Exception):
    """The job of a task ended without an answer; `code` is one of the contract's failure codes."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


def task(skill: str) -> str:
    """Name the task of a skill."""
    return f"{_PREFIX}{skill}"


def skill_of(task: str) -> str | None:
    """Return the skill of a task; None if the task is not ours."""
    return task.removeprefix(_PREFIX) if task.startswith(_PREFIX) else None


def queue(lane: str = names.DEFAULT_LANES[0], model: str | None = None) -> str:
    """Name the Celery queue of a lane, or of a model's own lane."""
    return f"{_PREFIX}{names.model_lane(lane, model)}"


def lane_of(celery_queue: str) -> str | None:
    """Return the lane that a Celery queue stands for; None if it is not a queue of ours."""
    lane = celery_queue.removeprefix(_PREFIX)
    return lane if lane != celery_queue and len(lane) <= ID_LIMIT and _LANE.fullmatch(lane) else None


def result_key(task_id: str) -> str:
    """Name the key, and the channel, of a task's result in Celery's result backend on Redis."""
    return f"celery-task-meta-{task_id}"
