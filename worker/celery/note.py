"""What Celery is to be told of a job's end, written once: whoever tells it, and however often, says the same."""

from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

import msgspec

from schemas import celery as dialect
from schemas.failure import Rejected
from schemas.result import Result
from schemas.state import State
from worker.celery.message import Canvas, Message, read_body

__all__ = ["Note", "Telling", "meta", "pack_note", "read_note", "write_note"]

# what Celery calls the reason of a revoked task
_REVOKED: Final = {State.CANCELLED: "terminated", State.EXPIRED: "expired"}


class Telling(StrEnum):
    """How a note is told."""

    FIRST = "first"
    AGAIN = "again"  # by a worker that may not be the first
    COUNT = "count"  # only what a chord counts, which counts each part once


class Note(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The end of one task.

    `status` is `SUCCESS` with the `answer`, `FAILURE` with `code` and `message`, or `REVOKED` with the reason in
    `message`. `request` is the task's context in Celery's words, its canvas included; `alone` says that nothing
    follows the task, so that its result is all there is to tell.
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


_DECODER: Final = msgspec.json.Decoder(Note)


def write_note(message: Message, result: Result) -> Note | None:
    """Say how a job ended; None if nobody is to be told."""
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
    return Note(
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


def pack_note(note: Note) -> bytes:
    """Return the note as JSON."""
    return msgspec.json.encode(note)


def read_note(packed: bytes) -> Note:
    """Read what `pack_note` wrote; raises `msgspec.DecodeError` for anything else."""
    return _DECODER.decode(packed)


def meta(note: Note) -> bytes:
    """Return the result message of a task that nothing follows, as Celery's backends store and publish it."""
    told: dict[str, Any] = {
        "status": note.status,
        "result": note.answer if note.status == "SUCCESS" else _exception(note),
        "traceback": None,
        "children": [],
        "date_done": note.date_done,
    }
    if group := note.request.get("group"):
        told["group_id"] = group
    if parent := note.request.get("parent_id"):
        told["parent_id"] = parent
    return msgspec.json.encode({**told, "task_id": note.id})


def _exception(note: Note) -> dict[str, Any]:
    if note.status == "REVOKED":
        return {"exc_type": "TaskRevokedError", "exc_message": [note.message], "exc_module": "celery.exceptions"}
    kind = dialect.SkillFailed
    return {"exc_type": kind.__name__, "exc_message": [note.code, note.message], "exc_module": kind.__module__}


def _canvas(message: Message) -> Canvas:
    try:
        return read_body(message)[2]
    except Rejected:
        return Canvas()  # nothing in it can be read: the result alone is told
