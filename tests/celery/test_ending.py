"""The endings of jobs in Celery's terms, compared with the results that Celery itself would write."""

from typing import Any
from uuid import uuid4

import msgspec
import pytest
from celery import Celery
from celery.app.task import Context
from celery.exceptions import TaskRevokedError

from stoop_schemas.celery import SkillFailed
from stoop_schemas.failure import Failure, FailureCode
from stoop_schemas.result import Result
from stoop_schemas.skill import Output, Point, Skill
from stoop_schemas.state import State
from stoop_worker.celery.ending import Ending, ending_of, pack_ending, read_ending, result_meta
from stoop_worker.celery.message import Message

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


def written(result: Result, canvas: dict[str, Any] | None = None, **headers: Any) -> Ending:
    ending = ending_of(message(canvas, **headers), result)
    assert ending is not None
    return ending


@pytest.mark.parametrize(
    ("result", "status", "value"),
    [
        (ANSWERED, "SUCCESS", {"points": [{"x": 0.25, "y": 0.5}]}),
        (FAILED, "FAILURE", SkillFailed("image_not_found", "nothing at s3://b/k")),
        (CANCELLED, "REVOKED", TaskRevokedError("terminated")),
        (EXPIRED, "REVOKED", TaskRevokedError("expired")),
    ],
)
def test_a_result_is_stored_as_celery_itself_stores_it(result: Result, status: str, value: Any) -> None:
    headers = {"group": "g", "parent_id": "p", "root_id": "r"}
    app = Celery("one", backend="cache+memory://", set_as_current=False)
    task_id = str(uuid4())  # the whole process shares that backend
    app.backend.store_result(task_id, value, status, request=Context(headers, children=[]))
    theirs = msgspec.json.decode(app.backend.get(app.backend.get_key_for_task(task_id)))
    ours = msgspec.json.decode(result_meta(written(result, **headers)))
    assert ours.pop("date_done") and theirs.pop("date_done")
    assert (ours.pop("task_id"), theirs.pop("task_id")) == ("t", task_id)
    assert ours == theirs
    read = app.backend.decode_result(result_meta(written(result)))["result"]
    assert (type(read), repr(read)) == (type(value), repr(value))
    app.close()


def test_an_ending_is_the_same_after_redis() -> None:
    kept = written(ANSWERED, {"chord": {"task": "shop.collect"}}, group="g", group_index=3)
    assert read_ending(pack_ending(kept)) == kept
    assert result_meta(read_ending(pack_ending(kept))) == result_meta(kept)


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
    assert written(result, canvas).alone is alone


def test_an_ignored_result_has_no_ending() -> None:
    assert ending_of(message(ignore_result=True), ANSWERED) is None
    assert written(ANSWERED, CHORD, ignore_result=True).request["ignore_result"] is True


def test_a_body_that_cannot_be_read_has_no_canvas() -> None:
    pickled = msgspec.structs.replace(message(CHORD), content_type="application/x-python-serialize")
    ending = ending_of(pickled, FAILED)
    assert ending is not None and ending.alone
