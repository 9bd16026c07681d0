"""The kombu transport on a real Redis: tasks for lanes become entries, and all other queues work as before."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from celery import Celery, group
from kombu import Connection
from kombu.exceptions import OperationalError
from kombu.transport import redis as stock

from stoop.celery import caption, configure, query
from stoop.redis.celery_transport import SentinelTransport
from stoop_schemas.celery import lane_of
from stoop_schemas.signature import SigningKeys
from stoop_worker.celery.message import read_job, read_message
from tests.celery.works import close

LANE = "stoop:{0}:jobs:interactive"


@pytest.fixture
def app(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Celery]:
    monkeypatch.delenv("STOOP_SIGNING_KEYS", raising=False)
    app = configure(Celery("sender", broker=redis_url, backend=redis_url, set_as_current=False))
    yield app
    close(app)


@pytest.fixture
def client(redis_url: str) -> Iterator["redis.Redis[bytes]"]:
    with redis.Redis.from_url(redis_url) as client:
        yield client


def send(app: Celery, *args: object, **options: Any) -> str:
    return str(app.signature("stoop.query", args, **options).apply_async().id)


def test_a_task_becomes_one_entry_of_its_lane(app: Celery, client: "redis.Redis[bytes]") -> None:
    task_id = send(app, None, "what?")
    [(_, fields)] = client.xrange(LANE)
    assert fields[b"id"].decode() == task_id
    job = read_job(read_message(fields[b"m"], None))
    assert (job.id, job.question) == (task_id, "what?")
    assert client.keys("stoop.*") == []


def test_the_queue_names_the_lane(app: Celery, client: "redis.Redis[bytes]") -> None:
    send(app, None, "q", queue="stoop.bulk")
    assert client.xlen("stoop:{0}:jobs:bulk") == 1
    assert client.xlen(LANE) == 0


def test_a_task_that_names_a_model_goes_into_that_model_s_lane(app: Celery, client: "redis.Redis[bytes]") -> None:
    send(app, None, "q", queue="stoop.bulk", kwargs={"model": "qwen3-8b"})
    send(app, None, "q", kwargs={"model": "qwen3-8b"}, countdown=60)
    send(app, None, "q", kwargs={"model": "no/model"})
    assert client.xlen("stoop:{0}:jobs:qwen3-8b:bulk") == 1
    [delayed] = client.zrange("stoop:{0}:delayed", 0, -1)
    known = client.hmget(f"stoop:{{0}}:job:{delayed.decode()}", "lane", "model")
    assert known == [b"qwen3-8b:interactive", b"qwen3-8b"]
    assert client.xlen(LANE) == 1, "what cannot be a model's name is refused by a worker"


def test_no_task_is_sent_into_the_quarantine(app: Celery, client: "redis.Redis[bytes]") -> None:
    for options in ({}, {"countdown": 60}):
        for lane in ("quarantine:alone", "qwen3:quarantine:alone"):
            with pytest.raises(ValueError, match="only Stoop's workers"):
                send(app, None, "q", queue=f"stoop.{lane}", **options)
    assert client.keys("stoop:*") == []


@pytest.mark.parametrize(
    ("queue", "lane"),
    [
        ("stoop.bulk", "bulk"),
        ("stoop.a.b", "a.b"),
        ("stoop.", None),
        ("celery", None),
        ("stoop.a/b", None),
        ("s", None),
    ],
)
def test_which_queues_are_lanes(queue: str, lane: str | None) -> None:
    assert lane_of(queue) == lane


def test_other_queues_are_as_a_stock_transport_has_them(
    app: Celery, client: "redis.Redis[bytes]", redis_url: str
) -> None:
    app.send_task("shop.draw", (1,))
    assert client.llen("celery") == 1
    with Connection(redis_url, transport=stock.Transport) as connection:
        got = connection.default_channel.basic_get("celery", no_ack=True)
        assert got is not None and got.headers["task"] == "shop.draw"


def test_a_group_is_sent_whole(app: Celery, client: "redis.Redis[bytes]") -> None:
    whole = group(app.signature("stoop.query", (None, str(i)), immutable=True) for i in range(5))
    sent = whole.apply_async()
    assert [fields[b"id"].decode() for _, fields in client.xrange(LANE)] == [one.id for one in sent.children]


def test_a_task_with_a_countdown_is_delayed_and_there_once(app: Celery, client: "redis.Redis[bytes]") -> None:
    for _ in range(2):
        send(app, None, "later", countdown=60, task_id="the-same")
    assert client.xlen(LANE) == 0
    assert client.zcard("stoop:{0}:delayed") == 1
    assert client.hget("stoop:{0}:job:the-same", "state") == b"delayed"
    send(app, None, "now", countdown=-1)
    assert client.xlen(LANE) == 1


def test_celery_can_neither_read_nor_purge_a_lane(app: Celery, client: "redis.Redis[bytes]") -> None:
    send(app, None, "q")
    with app.connection_for_read() as connection:
        channel = connection.default_channel
        for forbidden in (
            lambda: channel.basic_consume("stoop.interactive", True, print, "tag"),
            lambda: channel.basic_get("stoop.interactive"),
            lambda: channel.queue_purge("stoop.interactive"),
        ):
            with pytest.raises(OperationalError, match="belongs to Stoop's workers"):
                forbidden()
        assert channel.queue_declare("stoop.interactive").message_count == 1


def test_with_keys_messages_are_signed(
    app: Celery, client: "redis.Redis[bytes]", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STOOP_SIGNING_KEYS", "k1:0123456789abcdef")
    send(app, None, "signed")
    [(_, fields)] = client.xrange(LANE)
    keys = SigningKeys.read(["k1:0123456789abcdef"])
    assert keys is not None
    assert read_job(read_message(fields[b"m"], keys)).question == "signed"


def test_behind_sentinels_the_transport_knows_them() -> None:
    app = configure(Celery("sentinels", broker="sentinel://here:26379", set_as_current=False))
    assert app.connection_for_write().transport_cls == f"{SentinelTransport.__module__}:{SentinelTransport.__name__}"
    app.close()


def test_own_routes_come_first() -> None:
    app = Celery("routes", set_as_current=False)
    app.conf.task_routes = {"stoop.caption": {"queue": "stoop.bulk"}}
    configure(app)
    router = app.amqp.router
    assert router.route({}, "stoop.caption")["queue"].name == "stoop.bulk"
    assert router.route({}, "stoop.query")["queue"].name == "stoop.interactive"
    app.close()


def test_arguments_appear_only_in_the_body(app: Celery, client: "redis.Redis[bytes]") -> None:
    app.tasks["stoop.caption"].delay("s3://private/face.png")
    [(_, fields)] = client.xrange(LANE)
    assert b"private" not in fields[b"m"]
    assert b"s3" not in json.dumps(json.loads(fields[b"m"])["headers"]).encode()


def test_a_wrong_call_is_refused_where_it_is_made() -> None:
    with pytest.raises(TypeError):
        caption.delay()
    with pytest.raises(NotImplementedError, match="runs on a Stoop worker"):
        query(None, "here?")


def test_a_task_revoked_before_it_is_parked_stays_and_is_due_now(app: Celery, client: "redis.Redis[bytes]") -> None:
    client.hset("stoop:{0}:job:early", "cancel", 1)
    client.pexpire("stoop:{0}:job:early", 1000)
    send(app, None, "never", countdown=3600, task_id="early")
    assert client.pttl("stoop:{0}:job:early") == -1
    assert client.hget("stoop:{0}:job:early", "cancel") == b"1"
    assert client.zscore("stoop:{0}:delayed", "early") == 0
