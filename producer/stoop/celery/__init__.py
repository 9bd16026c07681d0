"""Stoop from a Celery application: the skills as tasks, to be called, chained and grouped like any others.

    app = configure(Celery("shop", broker=REDIS_URL, backend=REDIS_URL))
    query.delay("s3://photos/1.jpg", "What colour is the car?").get()

Needs the extra `celery`. `image`, and the `audio` of a recording, is an `s3://`, `data:` or `https://` address; the
fields of a job that have no argument of their own (`settings`, `reasoning`, `tenant`, …) are given by keyword. A task
that fails raises `SkillFailed`. `queue="stoop.bulk"` sends to another lane.
"""

from stoop.celery.tasks import (
    caption,
    chat,
    configure,
    detect,
    embed,
    gaze,
    point,
    query,
    rerank,
    task,
    transcribe,
    translate,
)
from stoop_schemas.celery import SkillFailed

__all__ = [
    "SkillFailed",
    "caption",
    "chat",
    "configure",
    "detect",
    "embed",
    "gaze",
    "point",
    "query",
    "rerank",
    "task",
    "transcribe",
    "translate",
]
