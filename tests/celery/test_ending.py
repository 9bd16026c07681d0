"""What Celery is told of a job's end, compared with what Celery itself would write."""

from typing import Any
from uuid import uuid4

import msgspec
import pytest
from celery import Celery
from celery.app.task import Context
from celery.exceptions import TaskRevokedError

from schemas.celery import SkillFailed
from schemas.failure import Failure, FailureCode
from schemas.result import Result
from schemas.skill import Output, Point, Skill
from schemas.state import State
from worker.celery.message import Message
from worker.celery.note import Note, meta, pack_note, read_note, write_note

FAILURE = Failure.of(FailureCode.IMAGE_NOT_FOUND, "nothing at s3://b/k")
ANSWERED = Result(id="t", status=State.COMPLETED, skill=Skill.POINT, output=Output(points=[Point(0.25, 0.5)]))
FAILED = Result(id="t", status=State.FAILED, skill=Skill.POINT, failure=FAILURE)
CANCELLED = Result(id="t", status=State.CANCELLED, skill=Skill.POINT)
EXPIRED = Result(id="t", status=State.EXPIRED, skill=Skill.POINT)


def message(canvas: dict[str, Any] | None = None, **headers: Any) -> Message:
    return msgspec.convert(
        {
            "headers": {"task": "stoop.point", "id": "t", **headers},
            "body": msgspec.json.encode([[], {}, canvas or {}]).decode(),
            "content-type": "application/json",
            "content-encoding": "utf-8",
        },
        Message,
    )


def note(result: Result, canvas: dict[str, Any] | None = None, **headers: Any) -> Note:
    written = write_note(message(canvas, **headers), result)
    assert written is not None
    return written


@pytest.mark.parametrize(
    ("result", "status", "value"),
    [
        (ANSWERED, "SUCCESS", {"points": [{"x": 0.25, "y": 0.5}]}),
        (FAILED, "FAILURE", SkillFailed("image_not_found", "nothing at s3://b/k")),
        (CANCELLED, "REVOKED", TaskRevokedError("terminated")),
        (EXPIRED, "REVOKED", TaskRevokedError("expired")),
    ],
)
def test_a_lone_result_is_what_celery_itself_would_store(result: Result, status: str, value: Any) -> None:
    headers = {"group": "g", "parent_id": "p", "root_id": "r"}
    app = Celery("one", backend="cache+memory://", set_as_current=False)
    task_id = str(uuid4())  # that backend is the process's
    app.backend.store_result(task_id, value, status, request=Context(headers, children=[]))
    theirs = msgspec.json.decode(app.backend.get(app.backend.get_key_for_task(task_id)))
    ours = msgspec.json.decode(meta(note(result, **headers)))
    assert ours.pop("date_done") and theirs.pop("date_done")
    assert (ours.pop("task_id"), theirs.pop("task_id")) == ("t", task_id)
    assert ours == theirs
    read = app.backend.decode_result(meta(note(result)))["result"]
    assert (type(read), repr(read)) == (type(value), repr(value))
    app.close()


def test_a_note_says_the_same_after_redis() -> None:
    kept = note(ANSWERED, {"chord": {"task": "shop.collect"}}, group="g", group_index=3)
    assert read_note(pack_note(kept)) == kept
    assert meta(read_note(pack_note(kept))) == meta(kept)


CHAIN = {"chain": [{"task": "shop.next"}]}
LINK = {"callbacks": [{"task": "shop.next"}]}
ERRBACK = {"errbacks": [{"task": "shop.mourn"}]}
CHORD = {"chord": {"task": "shop.collect"}}


@pytest.mark.parametrize(
    ("result", "canvas", "alone"),
    [
        (ANSWERED, {}, True),
        (ANSWERED, CHAIN, False),
        (ANSWERED, LINK, False),
        (ANSWERED, CHORD, False),
        (ANSWERED, ERRBACK, True),
        (FAILED, LINK, True),
        (FAILED, CHAIN, False),
        (FAILED, ERRBACK, False),
        (FAILED, CHORD, False),
        (CANCELLED, CHAIN, True),
        (CANCELLED, CHORD, False),
    ],
)
def test_celery_is_asked_only_where_something_follows(result: Result, canvas: dict[str, Any], alone: bool) -> None:
    assert note(result, canvas).alone is alone


def test_nothing_is_told_of_a_result_that_nobody_wants() -> None:
    assert write_note(message(ignore_result=True), ANSWERED) is None
    assert note(ANSWERED, CHORD, ignore_result=True).request["ignore_result"] is True


def test_a_body_that_cannot_be_read_has_no_canvas() -> None:
    pickled = msgspec.structs.replace(message(CHORD), content_type="application/x-python-serialize")
    written = write_note(pickled, FAILED)
    assert written is not None and written.alone
