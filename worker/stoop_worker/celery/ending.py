"""The ending of a job in Celery's terms. It is written once, so every delivery of it is the same."""

from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

import msgspec

from stoop_schemas import celery as dialect
from stoop_schemas.failure import Rejected
from stoop_schemas.result import Result
from stoop_schemas.state import State
from stoop_worker.celery.message import Canvas, Message, read_body

__all__ = ["Ending", "Redelivery", "ending_of", "pack_ending", "read_ending", "result_meta"]

# Celery's words for why a task was revoked
_REVOKED: Final = {State.CANCELLED: "terminated", State.EXPIRED: "expired"}


class Redelivery(StrEnum):
    """The part of an ending to deliver, which depends on whether Celery may have received it before."""

    FIRST = "first"
    AGAIN = "again"  # an earlier delivery may have got through, in full or in part
    COUNT = "count"  # repeat only the chord's count, which counts each part once


class Ending(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The ending of one task.

    `status` is `SUCCESS` with the `answer`, `FAILURE` with `code` and `message`, or `REVOKED` with the reason in
    `message`. `request` is the task's context in Celery's terms, including its canvas. `alone` is true if nothing
    follows the task, so that only its result has to be stored.
    """

    id: str
    task: str
    status: str
    alone: bool
    date_done: str
    request: dict[str, Any]
    answer: dict[str, Any] | None = None
    code: str = ""
    message: str = ""


_DECODER: Final = msgspec.json.Decoder(Ending)


def ending_of(message: Message, result: Result) -> Ending | None:
    """Return the ending of a message's job; None if nothing follows the task and its result is ignored."""
    canvas, reply_to = _canvas(message), message.properties.reply_to
    headers = message.headers
    status = {State.COMPLETED: "SUCCESS", State.FAILED: "FAILURE"}.get(result.status, "REVOKED")
    alone = not (canvas.chord or (status == "SUCCESS" and (canvas.callbacks or canvas.chain)))
    alone = alone and not (status == "FAILURE" and (canvas.errbacks or canvas.chain))
    if alone and headers.ignore_result:
        return None
    request = {name: value for name, value in msgspec.to_builtins(headers).items() if value is not None}
    if not alone:
        request |= msgspec.to_builtins(canvas) | {"reply_to": reply_to, "correlation_id": headers.id}
        request["delivery_info"] = {"priority": message.properties.priority}
    failure = result.failure
    return Ending(
        id=headers.id,
        task=headers.task,
        status=status,
        alone=alone,
        date_done=datetime.now(UTC).isoformat(),
        request=request,
        answer=msgspec.to_builtins(result.output) if result.output else None,
        code=failure.code.value if failure else "",
        message=_REVOKED.get(result.status) or (failure.message if failure else ""),
    )


def pack_ending(ending: Ending) -> bytes:
    """Return the ending as JSON."""
    return msgspec.json.encode(ending)


def read_ending(packed: bytes) -> Ending:
    """Read an ending packed by `pack_ending`; raises `msgspec.DecodeError` for anything else."""
    return _DECODER.decode(packed)


def result_meta(ending: Ending) -> bytes:
    """Return a task's result as Celery's backends store and publish it, for a task that nothing follows."""
    meta: dict[str, Any] = {
        "status": ending.status,
        "result": ending.answer if ending.status == "SUCCESS" else _exception(ending),
        "traceback": None,
        "children": [],
        "date_done": ending.date_done,
    }
    if group := ending.request.get("group"):
        meta["group_id"] = group
    if parent := ending.request.get("parent_id"):
        meta["parent_id"] = parent
    return msgspec.json.encode({**meta, "task_id": ending.id})


def _exception(ending: Ending) -> dict[str, Any]:
    if ending.status == "REVOKED":
        return {"exc_type": "TaskRevokedError", "exc_message": [ending.message], "exc_module": "celery.exceptions"}
    kind = dialect.SkillFailed
    return {"exc_type": kind.__name__, "exc_message": [ending.code, ending.message], "exc_module": kind.__module__}


def _canvas(message: Message) -> Canvas:
    try:
        return read_body(message)[2]
    except Rejected:
        return Canvas()  # the body is unreadable, so only the result is reported
