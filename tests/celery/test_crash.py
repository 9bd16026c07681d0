"""Our worker is killed while Celery waits for its jobs: every ending is delivered, each result once."""

import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import redis
from celery import Celery, chord, group

from stoop.celery import query
from stoop.demo.embedded import EmbeddedRedis
from stoop_schemas.result import Result
from stoop_schemas.skill import Output, Skill
from stoop_schemas.state import State
from stoop_worker.celery.ending import Ending, ending_of, pack_ending
from stoop_worker.celery.message import Canvas, Message
from tests.celery.conftest import CeleryDeployment
from tests.celery.works import ROOT, SECONDS, gpu_worker, until


@pytest.fixture
def published(deployment: CeleryDeployment) -> Iterator["redis.client.PubSub"]:
    """Every result that is published."""
    with deployment.redis.pubsub() as channel:
        channel.psubscribe("celery-task-meta-*")
        until(lambda: channel.get_message(timeout=1) is not None)
        yield channel


def count(published: "redis.client.PubSub") -> Counter[str]:
    """Count the published results of each task."""
    ends: Counter[str] = Counter()
    while message := published.get_message(timeout=0.5):
        meta = msgspec.json.decode(message["data"])
        ends[meta["task_id"]] += meta["status"] == "SUCCESS"
    return ends


def states(deployment: CeleryDeployment, ids: list[str]) -> Counter[bytes]:
    return Counter(deployment.redis.hget(f"stoop:{{0}}:job:{one}", "state") or b"" for one in ids)


def test_a_chord_survives_the_death_of_the_worker(
    deployment: CeleryDeployment, published: "redis.client.PubSub", tmp_path: Path
) -> None:
    parts = [f"quick {i}" for i in range(4)] + ["sleep 1.5"] * 4
    whole = chord([query.si(None, part).set(queue="stoop.alpha") for part in parts], deployment.shop.collect.s())
    with gpu_worker(tmp_path, "victim", deployment.redis_url, lanes="alpha") as victim:
        body = whole.apply_async()
        ids = [part.id for part in body.parent.children]
        until(lambda: states(deployment, ids) == {b"completed": 4, b"running": 4})
        victim.end(signal.SIGKILL)
    with gpu_worker(tmp_path, "heir", deployment.redis_url, lanes="alpha"):
        answers = body.get(timeout=SECONDS)
    assert answers == sorted([*parts[:4], *["slept"] * 4])
    assert deployment.ledger("collect") == [",".join(answers)]
    ends = count(published)
    assert [ends[one] for one in [*ids, body.id]] == [1] * 9


def answered(task_id: str, answer: str, canvas: Canvas | None = None, **headers: object) -> Ending:
    """Return the ending that a worker would have stored for a task."""
    body = [[], {}, msgspec.to_builtins(canvas or Canvas())]
    message = msgspec.convert(
        {
            "headers": {"task": "stoop.query", "id": task_id, **headers},
            "body": msgspec.json.encode(body).decode(),
            "content-type": "application/json",
            "content-encoding": "utf-8",
        },
        Message,
    )
    result = Result(id=task_id, status=State.COMPLETED, skill=Skill.QUERY, output=Output(answer=answer))
    ending = ending_of(message, result)
    assert ending is not None
    return ending


def leave(deployment: CeleryDeployment, ending: Ending) -> None:
    """Put an ending into the outbox as taken by a worker that then died."""
    deployment.redis.xadd("stoop:{0}:celery", {"n": pack_ending(ending)})
    deployment.redis.xreadgroup("workers", "dead", {"stoop:{0}:celery": ">"}, count=1)


def test_another_worker_delivers_the_endings_of_a_dead_one(deployment: CeleryDeployment) -> None:
    query.delay(None, "first, so that a worker relays").get(timeout=SECONDS)
    for name in ("one", "two"):
        ending = answered(f"orphan-{name}", name)
        assert ending.alone
        leave(deployment, ending)
        assert deployment.shop.app.AsyncResult(f"orphan-{name}").get(timeout=SECONDS) == {"answer": name}
        until(lambda: not deployment.redis.xpending_range("stoop:{0}:celery", "workers", "-", "+", 9, "dead"))


def test_a_chain_continues_once_although_its_ending_is_delivered_twice(deployment: CeleryDeployment) -> None:
    step = deployment.shop.shout.s().set(task_id="the-next-step")
    ending = answered("the-first-step", "once", Canvas(chain=[step]))
    leave(deployment, ending)
    assert deployment.shop.app.AsyncResult("the-next-step").get(timeout=SECONDS) == "ONCE"
    until(lambda: not deployment.redis.xpending_range("stoop:{0}:celery", "workers", "-", "+", 9, "dead"))
    leave(deployment, ending)
    until(lambda: not deployment.redis.xpending_range("stoop:{0}:celery", "workers", "-", "+", 9, "dead"))
    query.apply_async((None, "after it"), link=deployment.shop.shout.s().set(task_id="after-it")).get(timeout=SECONDS)
    assert deployment.shop.app.AsyncResult("after-it").get(timeout=SECONDS) == "AFTER IT"
    assert deployment.ledger("shout") == ["ONCE", "AFTER IT"]


def test_a_part_of_a_chord_that_is_delivered_twice_counts_once(deployment: CeleryDeployment) -> None:
    parts = group(query.si(None, "wait") for _ in range(2))
    body = chord(parts, deployment.shop.collect.s()).apply_async()
    first, second = body.parent.children
    ours = Canvas(chord=deployment.shop.collect.s().set(task_id=body.id))
    for times in (1, 2):
        ending = answered(first.id, "first", ours, group=body.parent.id, group_index=0)
        entry = deployment.redis.xadd("stoop:{0}:celery", {"n": pack_ending(ending)})
        until(lambda: not deployment.redis.xrange("stoop:{0}:celery", entry, entry))  # noqa: B023
        assert not body.ready(), f"after {times} deliveries only one part of two is there"
    leave(deployment, answered(second.id, "second", ours, group=body.parent.id, group_index=1))
    assert body.get(timeout=SECONDS) == ["first", "second"]
    assert deployment.ledger("collect") == ["first,second"]
    for part in (first, second):
        part.revoke()


SENDER = """
import sys
from celery import Celery, chord
from stoop.celery import configure
app = configure(Celery("sender", broker=sys.argv[1], backend=sys.argv[1]))
ask = app.tasks["stoop.query"].si
ask(None, "warm").apply_async(link=ask(None, "up").set(task_id="up"))
chord([ask(None, "sleep 1") for _ in range(4)], ask(None, "body").set(task_id="body"), app=app).apply_async()
"""


def test_redis_may_restart_in_the_middle_of_a_chord(
    redis_server: EmbeddedRedis, redis_url: str, tmp_path: Path
) -> None:
    with gpu_worker(tmp_path, "patient", redis_url):
        # another process sends, because a Celery sender listens for results and leaks a connection when Redis goes away
        subprocess.run([sys.executable, "-c", SENDER, redis_url], check=True, cwd=ROOT)
        until(lambda: stored(redis_url, "up") is not None)
        redis_server.kill()
        redis_server.restart()
        until(lambda: stored(redis_url, "body") is not None)
        assert stored(redis_url, "body") == {"answer": "body"}


def stored(redis_url: str, task_id: str) -> object:
    """Return a result from the backend, without Celery; None if there is none."""
    with redis.Redis.from_url(redis_url) as client:
        packed = client.get(f"celery-task-meta-{task_id}")
    return msgspec.json.decode(packed)["result"] if packed else None


def test_a_worker_delivers_every_ending_before_it_stops(own: Celery, redis_url: str, tmp_path: Path) -> None:
    with redis.Redis.from_url(redis_url) as client, gpu_worker(tmp_path, "leaver", redis_url) as leaver:
        follower = own.signature("stoop.query", (None, "next"), immutable=True, queue="stoop.other")
        last = own.signature("stoop.query", (None, "sleep 0.5"), link=follower).apply_async()
        until(lambda: client.hget(f"stoop:{{0}}:job:{last.id}", "state") == b"running")
        assert leaver.end(signal.SIGTERM) == 0
        assert last.get(timeout=SECONDS) == {"answer": "slept"}
        assert client.xlen("stoop:{0}:jobs:other") == 1
        assert client.xlen("stoop:{0}:celery") == 0


def test_nothing_of_celery_before_the_first_message(own: Celery, redis_url: str, tmp_path: Path) -> None:
    loaded = "import sys, stoop_worker.main; print(*sorted(m for m in sys.modules if 'celery' in m or 'kombu' in m))"
    modules = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True, cwd=ROOT)
    assert modules.stdout.split() == ["stoop_schemas.celery", "stoop_worker.celery", "stoop_worker.celery.dialect"]
    with redis.Redis.from_url(redis_url) as client, gpu_worker(tmp_path, "plain", redis_url) as plain:
        client.xadd("stoop:{0}:jobs:interactive", {"j": '{"id": "ours", "skill": "query", "question": "hello"}'})
        until(lambda: client.exists("stoop:{0}:result:ours") == 1)
        assert len(plain.children) == 1, "the engine alone"
        own.signature("stoop.query", (None, "hello")).apply_async().get(timeout=SECONDS)
        until(lambda: len(plain.children) == 2)
