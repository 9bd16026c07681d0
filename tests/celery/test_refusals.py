"""What our worker does with messages that it will not run, and with a Celery beside it that dies."""

import json
import os
import signal
from pathlib import Path

import pytest
from celery import chain, chord

from producer.celery import SkillFailed, query
from tests.celery.conftest import Street
from tests.celery.test_message import message
from tests.celery.works import SECONDS, until


def letters(street: Street) -> list[dict[str, str]]:
    """Return the dead letters, and remove them."""
    entries = street.redis.xrange("stoop:{0}:dead")
    for entry, _ in entries:
        street.redis.xdel("stoop:{0}:dead", entry)
    return [{key.decode(): value.decode(errors="replace") for key, value in fields.items()} for _, fields in entries]


@pytest.mark.parametrize(
    ("task", "serializer", "code"),
    [("shop.draw", "json", "unsupported_skill"), ("stoop.query", "pickle", "malformed")],
)
def test_other_tasks_and_pickles_are_dead_letters_and_the_sender_hears_it(
    street: Street, task: str, serializer: str, code: str
) -> None:
    letters(street)
    with pytest.raises(SkillFailed) as failed:
        street.shop.app.send_task(task, (None, "x"), queue="stoop.bulk", serializer=serializer).get(timeout=SECONDS)
    assert failed.value.code == code
    [letter] = letters(street)
    assert json.loads(letter["failure"])["code"] == code
    assert "m" in letter and "j" not in letter
    assert street.ledger("shout") == []


@pytest.mark.parametrize("packed", [b"", b"{}", b"\xff\xfe", b'{"headers": {"id": {"a": 1}}}', b'{"headers": []}'])
def test_what_is_no_message_is_a_dead_letter(street: Street, packed: bytes) -> None:
    letters(street)
    entry = street.redis.xadd("stoop:{0}:jobs:interactive", {"m": packed})
    until(lambda: street.redis.xlen("stoop:{0}:dead") == 1)
    [letter] = letters(street)
    assert letter["id"] == entry.decode()
    assert json.loads(letter["failure"])["code"] == "malformed"


def test_a_bare_entry_with_a_message_is_a_job(street: Street) -> None:
    street.redis.xadd("stoop:{0}:jobs:interactive", {"m": message(headers={"id": "bare"})})
    assert street.shop.app.AsyncResult("bare").get(timeout=SECONDS) == {"answer": "what?"}


def test_one_task_does_not_answer_for_another(street: Street) -> None:
    street.redis.xadd("stoop:{0}:jobs:interactive", {"id": "mine", "m": message(headers={"id": "yours"})})
    until(lambda: street.redis.hget("stoop:{0}:job:mine", "state") == b"failed")
    query.delay(None, "after it").get(timeout=SECONDS)
    assert street.redis.get("celery-task-meta-yours") is None
    letters(street)


def clerks(street: Street) -> list[int]:
    """Find the process beside our worker that has Celery in it."""
    names = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in street.gpu.children}
    return [pid for pid, name in names.items() if b"worker.celery" in name]


def test_celery_may_die_beside_the_worker(street: Street) -> None:
    chain(query.s(None, "x"), street.shop.shout.s()).apply_async().get(timeout=SECONDS)
    [clerk] = clerks(street)
    os.kill(clerk, signal.SIGKILL)
    parts = [query.s(None, f"p{i}") for i in range(5)]
    assert chord(parts, street.shop.collect.s()).apply_async().get(timeout=SECONDS) == [f"p{i}" for i in range(5)]
    [another] = clerks(street)
    assert another != clerk
    assert street.ledger("collect") == ["p0,p1,p2,p3,p4"]
    street.ledger("shout")
