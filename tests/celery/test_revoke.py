"""A waiting task is revoked: our worker settles it and stores `REVOKED`. No stock worker could do it first."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import redis
from celery import Celery
from celery.exceptions import TaskRevokedError

from stoop_worker.celery.dialect import CeleryDialect, CelerySettings
from stoop_worker.celery.ending import Redelivery
from stoop_worker.celery.sidecar import Sidecar, SidecarLost, SidecarSettings
from stoop_worker.jobs.broker import Delivery
from tests.celery.test_message import message
from tests.celery.works import SECONDS, gpu_worker, until

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
    """Our worker; enters when it answers remote control."""
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
    """Run a dialect that answers remote control and polls the outbox only once."""
    dialect = CeleryDialect(settings, "w", keys=None, in_flight=lambda: held, period=1000.0)
    running = asyncio.create_task(dialect.run())
    yield
    assert not running.done()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def answers(own: Celery) -> None:
    await asyncio.to_thread(until, lambda: bool(own.control.ping(timeout=0.5)))


async def test_a_malformed_message_does_not_end_remote_control(
    own: Celery, client: "redis.Redis[bytes]", redis_url: str
) -> None:
    held = (delivery("broken", b'{"headers": 1}'), delivery("task-1", message()))
    async with serving(CelerySettings("on", redis_url), *held):
        await answers(own)
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
        await answers(own)
        client.acl_setuser("limited", commands=["-evalsha", "-eval"], enabled=True, nopass=True)
        before = rejected(client)
        own.control.revoke(["first", "second"])
        await asyncio.to_thread(until, lambda: rejected(client) >= before + 2)
        client.acl_setuser("limited", commands=["+@all"], enabled=True, nopass=True)
        own.control.revoke("third")
        await asyncio.to_thread(until, lambda: client.hget(job("third"), "cancel") == b"1")


def rejected(client: "redis.Redis[bytes]") -> int:
    return int(client.info("commandstats")["cmdstat_evalsha"]["rejected_calls"])


async def test_a_command_that_fails_is_skipped(own: Celery, redis_url: str) -> None:
    heard: list[str] = []

    async def revoke(ids: list[str]) -> None:
        heard.extend(ids)
        if "first" in ids:
            raise ValueError

    def inspect(what: str) -> None:
        raise ValueError(what)

    settings = SidecarSettings(redis_url, redis_url, "stoop@w", 60)
    sidecar = Sidecar(settings, revoke=revoke, inspect=inspect)
    await sidecar.start()
    await answers(own)
    own.control.revoke("first")
    own.control.revoke(["x" * 2000] * 10_000)
    own.control.inspect(destination=["stoop@w"], timeout=0.1).stats()
    own.control.revoke("last")
    await asyncio.to_thread(until, lambda: "last" in heard)
    assert heard == ["first", "last"]
    await sidecar.close()


GARBLED = """
import sys
sys.stdin.readline()
for line in ("private, and not JSON", "x" * (17 << 20), '{"revoke": ["last"]}'):
    print(line, flush=True)
for line in sys.stdin:
    print("private, and not JSON", flush=True)
"""


async def test_a_garbled_message_of_the_sidecar_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "stoop_worker").mkdir()
    (tmp_path / "stoop_worker" / "__init__.py").touch()
    (tmp_path / "stoop_worker" / "celery.py").write_text(GARBLED)
    monkeypatch.chdir(tmp_path)  # the sidecar's program is looked up here
    heard: asyncio.Queue[list[str]] = asyncio.Queue()
    sidecar = Sidecar(SidecarSettings("", "", "stoop@w", 60), revoke=heard.put, inspect=len)
    await sidecar.start()
    async with asyncio.timeout(SECONDS):
        assert await heard.get() == ["last"]
        with pytest.raises(
            SidecarLost
        ):  # the garbled line may have been the answer, so deliver twice instead of waiting for ever
            await sidecar.deliver([(b"{}", Redelivery.FIRST)])
    await sidecar.close()
    assert "private" not in "".join(capfd.readouterr())
