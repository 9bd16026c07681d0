"""A task that waits is revoked: it is settled, and `REVOKED` is told. No stock worker is here to write that first."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import redis
from celery import Celery
from celery.exceptions import TaskRevokedError

from tests.celery.test_message import message
from tests.celery.works import SECONDS, gpu_worker, until
from worker.celery.clerk import Clerk, ClerkLost, Desk
from worker.celery.note import Telling
from worker.dialect import CeleryDialect, CelerySettings
from worker.jobs.broker import Delivery

DAY = 86_400_000
PAUSED = "stoop:{0}:paused"


def job(task_id: str) -> str:
    return f"stoop:{{0}}:job:{task_id}"


@pytest.fixture
def client(redis_url: str) -> Iterator["redis.Redis[bytes]"]:
    with redis.Redis.from_url(redis_url) as client:
        yield client


@pytest.fixture
def worker(own: Celery, redis_url: str, tmp_path: Path) -> Iterator[None]:
    """Our worker, from when it hears of revoked tasks."""
    with gpu_worker(tmp_path, "lone", redis_url, celery="on"):
        until(lambda: bool(own.control.ping(timeout=0.5)))
        yield


@pytest.mark.usefixtures("worker")
def test_in_a_paused_lane_a_task_that_was_due_ends_at_once(own: Celery, client: "redis.Redis[bytes]") -> None:
    client.sadd(PAUSED, "bulk")
    waiting = own.tasks["stoop.query"].apply_async((None, "never"), queue="stoop.bulk", countdown=1)
    until(lambda: client.hget(job(waiting.id), "state") == b"queued")
    waiting.revoke()
    with pytest.raises(TaskRevokedError):
        waiting.get(timeout=SECONDS)
    assert client.hget(job(waiting.id), "state") == b"cancelled"
    assert client.sismember(PAUSED, "bulk")
    assert client.xlen("stoop:{0}:jobs:bulk") == 0


@pytest.mark.usefixtures("worker")
def test_a_task_revoked_before_it_is_known_does_not_run(own: Celery, client: "redis.Redis[bytes]") -> None:
    client.sadd(PAUSED, "bulk")
    ask = own.tasks["stoop.query"]
    in_lane = ask.apply_async((None, "never"), queue="stoop.bulk")
    in_lane.revoke()
    own.control.revoke("later")
    for task_id in (in_lane.id, "later"):
        until(lambda: client.hget(job(task_id), "cancel") == b"1")  # noqa: B023
        assert client.pttl(job(task_id)) > 7 * DAY
    later = ask.apply_async((None, "never"), task_id="later", countdown=3600)
    with pytest.raises(TaskRevokedError):
        later.get(timeout=SECONDS)
    assert client.xlen("stoop:{0}:jobs:bulk") == 1
    client.srem(PAUSED, "bulk")
    with pytest.raises(TaskRevokedError):
        in_lane.get(timeout=SECONDS)


def delivery(job_id: str, packed: bytes) -> Delivery:
    return Delivery(job_id, packed, "bulk", "1-0", 0, 1, 0, 1, 1, celery=True)


@asynccontextmanager
async def serving(settings: CelerySettings, *held: Delivery) -> AsyncIterator[None]:
    """A dialect that answers remote control, and looks for notes no more."""
    dialect = CeleryDialect(settings, "w", keys=None, in_flight=lambda: held, period=1000.0)
    running = asyncio.create_task(dialect.run())
    yield
    assert not running.done()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def hears(own: Celery) -> None:
    await asyncio.to_thread(until, lambda: bool(own.control.ping(timeout=0.5)))


async def test_what_is_no_message_does_not_end_remote_control(
    own: Celery, client: "redis.Redis[bytes]", redis_url: str
) -> None:
    held = (delivery("broken", b'{"headers": 1}'), delivery("task-1", message()))
    async with serving(CelerySettings("on", redis_url), *held):
        await hears(own)
        inspect = own.control.inspect(destination=["stoop@w"], timeout=5, limit=1)
        [active] = (await asyncio.to_thread(inspect.active))["stoop@w"]
        assert (active["id"], active["name"]) == ("task-1", "stoop.query")
        own.control.revoke("after-it")
        await asyncio.to_thread(until, lambda: client.hget(job("after-it"), "cancel") == b"1")


async def test_a_refusal_of_redis_does_not_end_remote_control(
    own: Celery, client: "redis.Redis[bytes]", redis_url: str
) -> None:
    client.acl_setuser("limited", enabled=True, nopass=True, keys=["*"], channels=["*"], commands=["+@all"])
    limited = redis_url.replace("redis://", "redis://limited:x@")
    async with serving(CelerySettings("on", limited, redis_url, redis_url)):
        await hears(own)
        client.acl_setuser("limited", commands=["-evalsha", "-eval"], enabled=True, nopass=True)
        before = rejected(client)
        own.control.revoke(["first", "second"])
        await asyncio.to_thread(until, lambda: rejected(client) >= before + 2)
        client.acl_setuser("limited", commands=["+@all"], enabled=True, nopass=True)
        own.control.revoke("third")
        await asyncio.to_thread(until, lambda: client.hget(job("third"), "cancel") == b"1")


def rejected(client: "redis.Redis[bytes]") -> int:
    return int(client.info("commandstats")["cmdstat_evalsha"]["rejected_calls"])


async def test_an_order_that_fails_is_passed_over(own: Celery, redis_url: str) -> None:
    heard: list[str] = []

    async def revoke(ids: list[str]) -> None:
        heard.extend(ids)
        if "first" in ids:
            raise ValueError

    def look(what: str) -> None:
        raise ValueError(what)

    clerk = Clerk(Desk(redis_url, redis_url, "stoop@w", 60), revoke=revoke, look=look)
    await clerk.start()
    await hears(own)
    own.control.revoke("first")
    own.control.revoke(["x" * 2000] * 10_000)
    own.control.inspect(destination=["stoop@w"], timeout=0.1).stats()
    own.control.revoke("last")
    await asyncio.to_thread(until, lambda: "last" in heard)
    assert heard == ["first", "last"]
    await clerk.close()


GARBLED = """
import sys
sys.stdin.readline()
for word in ("private, and no JSON", "x" * (17 << 20), '{"revoke": ["last"]}'):
    print(word, flush=True)
for line in sys.stdin:
    print("private, and no JSON", flush=True)
"""


async def test_a_word_that_cannot_be_read_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "worker").mkdir()
    (tmp_path / "worker" / "__init__.py").touch()
    (tmp_path / "worker" / "celery.py").write_text(GARBLED)
    monkeypatch.chdir(tmp_path)  # the process is the program that is found here
    heard: asyncio.Queue[list[str]] = asyncio.Queue()
    clerk = Clerk(Desk("", "", "stoop@w", 60), revoke=heard.put, look=len)
    await clerk.start()
    async with asyncio.timeout(SECONDS):
        assert await heard.get() == ["last"]
        with pytest.raises(ClerkLost):  # that may have been the answer: rather tell twice than wait for ever
            await clerk.tell([(b"{}", Telling.FIRST)])
    await clerk.close()
    assert "private" not in "".join(capfd.readouterr())
