"""Our worker refuses messages that it cannot run, and survives the death of its Celery sidecar."""

import json
import os
import signal
from pathlib import Path

import pytest
import redis
from celery import Celery, chain, chord

from stoop.celery import SkillFailed, query
from tests.celery.conftest import CeleryDeployment
from tests.celery.test_message import message
from tests.celery.works import SECONDS, gpu_worker, until


def letters(deployment: CeleryDeployment) -> list[dict[str, str]]:
    """Return the dead letters, and remove them."""
    entries = deployment.redis.xrange("stoop:{0}:dead")
    for entry, _ in entries:
        deployment.redis.xdel("stoop:{0}:dead", entry)
    return [{key.decode(): value.decode(errors="replace") for key, value in fields.items()} for _, fields in entries]


@pytest.mark.parametrize(
    ("task", "serializer", "code"),
    [("shop.draw", "json", "unsupported_skill"), ("stoop.query", "pickle", "malformed")],
)
def test_other_tasks_and_pickles_are_dead_letters_and_the_sender_gets_the_failure(
    deployment: CeleryDeployment, task: str, serializer: str, code: str
) -> None:
    letters(deployment)
    with pytest.raises(SkillFailed) as failed:
        deployment.shop.app.send_task(task, (None, "x"), queue="stoop.bulk", serializer=serializer).get(timeout=SECONDS)
    assert failed.value.code == code
    [letter] = letters(deployment)
    assert json.loads(letter["failure"])["code"] == code
    assert "m" in letter and "j" not in letter
    assert deployment.ledger("shout") == []


@pytest.mark.parametrize("packed", [b"", b"{}", b"\xff\xfe", b'{"headers": {"id": {"a": 1}}}', b'{"headers": []}'])
def test_a_malformed_message_is_a_dead_letter(deployment: CeleryDeployment, packed: bytes) -> None:
    letters(deployment)
    entry = deployment.redis.xadd("stoop:{0}:jobs:interactive", {"m": packed})
    until(lambda: deployment.redis.xlen("stoop:{0}:dead") == 1)
    [letter] = letters(deployment)
    assert letter["id"] == entry.decode()
    assert json.loads(letter["failure"])["code"] == "malformed"


def test_a_bare_entry_with_a_message_is_a_job(deployment: CeleryDeployment) -> None:
    deployment.redis.xadd("stoop:{0}:jobs:interactive", {"m": message(headers={"id": "bare"})})
    assert deployment.shop.app.AsyncResult("bare").get(timeout=SECONDS) == {"answer": "what?"}


def test_one_task_does_not_answer_for_another(deployment: CeleryDeployment) -> None:
    deployment.redis.xadd("stoop:{0}:jobs:interactive", {"id": "mine", "m": message(headers={"id": "yours"})})
    until(lambda: deployment.redis.hget("stoop:{0}:job:mine", "state") == b"failed")
    query.delay(None, "after it").get(timeout=SECONDS)
    assert deployment.redis.get("celery-task-meta-yours") is None
    letters(deployment)


def sidecars(deployment: CeleryDeployment) -> list[int]:
    """Return the ids of our worker's sidecar processes."""
    names = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in deployment.gpu.children}
    return [pid for pid, name in names.items() if b"stoop_worker.celery" in name]


def test_the_sidecar_may_die(deployment: CeleryDeployment) -> None:
    chain(query.s(None, "x"), deployment.shop.shout.s()).apply_async().get(timeout=SECONDS)
    [sidecar] = sidecars(deployment)
    os.kill(sidecar, signal.SIGKILL)
    parts = [query.s(None, f"p{i}") for i in range(5)]
    assert chord(parts, deployment.shop.collect.s()).apply_async().get(timeout=SECONDS) == [f"p{i}" for i in range(5)]
    [another] = sidecars(deployment)
    assert another != sidecar
    assert deployment.ledger("collect") == ["p0,p1,p2,p3,p4"]
    deployment.ledger("shout")


def test_where_jobs_are_signed_tasks_and_their_follow_ups_are_too(
    own: Celery, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = "k1:0123456789abcdef"
    ask = own.tasks["stoop.query"]
    with gpu_worker(tmp_path, "strict", redis_url, signing_keys=keys), redis.Redis.from_url(redis_url) as client:
        unsigned = ask.delay(None, "unsigned")
        until(lambda: client.xlen("stoop:{0}:dead") == 1)
        assert b"not signed" in client.xrange("stoop:{0}:dead")[0][1][b"failure"]
        assert client.exists(f"celery-task-meta-{unsigned.id}") == 0, "an unsigned message gets no result"
        monkeypatch.setenv("STOOP_SIGNING_KEYS", keys)
        last = chain(ask.si(None, "first"), ask.si(None, "second"), app=own).apply_async()
        assert last.get(timeout=SECONDS) == {"answer": "second"}


def test_a_worker_may_take_no_messages_at_all(own: Celery, redis_url: str, tmp_path: Path) -> None:
    with gpu_worker(tmp_path, "native", redis_url, celery="off"), redis.Redis.from_url(redis_url) as client:
        own.tasks["stoop.query"].delay(None, "hello")
        until(lambda: client.xlen("stoop:{0}:dead") == 1)
        assert b"STOOP_CELERY" in client.xrange("stoop:{0}:dead")[0][1][b"failure"]
        assert client.xlen("stoop:{0}:celery") == 0


def test_follow_up_tasks_go_where_the_workers_routes_send_them(own: Celery, redis_url: str, tmp_path: Path) -> None:
    routes = "shop.*=cpu"
    with gpu_worker(tmp_path, "router", redis_url, celery_routes=routes), redis.Redis.from_url(redis_url) as client:
        ask = own.tasks["stoop.query"]
        chain(ask.si(None, "x"), own.signature("shop.shout"), app=own).apply_async()
        until(lambda: client.llen("cpu") == 1)
        chain(ask.si(None, "x"), own.signature("shop.shout", queue="slow"), app=own).apply_async()
        until(lambda: client.llen("slow") == 1)
        assert client.llen("cpu") == 1
