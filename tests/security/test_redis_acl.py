"""The users of deploy/redis on a real Redis: each can do its whole work, and nothing else.

All tests of the contract run here again, the workers as `worker` and the callers as `client`. Redis 7 or
newer is tried with both files.
"""

import asyncio
import hashlib
import re
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.backoff
import redis.retry
from redis.exceptions import NoPermissionError

from stoop.client.transport import Transport
from stoop.errors import QueueUnavailable
from stoop.operator.redis_operator import RedisOperator
from stoop.redis.transport import RedisTransport
from stoop_schemas import names
from stoop_worker.jobs.broker import Broker
from stoop_worker.jobs.outcome import Dead
from stoop_worker.jobs.redis.broker import RedisBroker
from tests.contract import test_model_contract
from tests.contract.queues import FAILURE, OnRedis, ending, new_job
from tests.contract.test_broker_contract import *  # noqa: F403
from tests.contract.test_cancel_contract import *  # noqa: F403
from tests.contract.test_flow_contract import *  # noqa: F403
from tests.contract.test_model_contract import *  # noqa: F403
from tests.contract.test_takeover_contract import *  # noqa: F403
from tests.contract.test_tenant_contract import *  # noqa: F403
from tests.contract.test_transport_contract import *  # noqa: F403
from tests.deploy.test_redis_conf import redis_program
from tests.flow.scripted import running_queue
from tests.project.modules import ROOT
from tests.security.redis_process import running_redis

TEMPLATES = {name: (ROOT / "deploy" / "redis" / name).read_text() for name in ("users.acl", "users-7.acl")}
USERS = re.findall(r"^user (\w+) on", TEMPLATES["users.acl"], re.M)
VERSION = int(re.findall(r"v=(\d+)", subprocess.check_output([redis_program(), "--version"], text=True))[0])
JOB, LANE = names.job("a"), names.lane("interactive")


async def test_a_client_learns_which_workers_live(queue: "WithRoles", template: str) -> None:
    if template == "users-7.acl":
        await test_model_contract.test_a_client_learns_which_workers_live(queue)
        return
    with pytest.raises(QueueUnavailable, match="refuses this client"):  # or it could write there too
        await queue.transport().workers()


@pytest.fixture(scope="module", params=["users.acl", *(["users-7.acl"] if VERSION >= 7 else [])])
def template(request: pytest.FixtureRequest) -> str:
    """The name of a file that this server can read."""
    return str(request.param)


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory, template: str) -> Iterator[int]:
    """A server with the users of the template, and one for what tests do on their own."""
    folder = tmp_path_factory.mktemp("acl")
    digests = {f"{user.upper()}_SHA256": hashlib.sha256(f"{user}-password".encode()).hexdigest() for user in USERS}
    text = re.sub(r"\$\{(\w+)\}", lambda match: digests[match[1]], TEMPLATES[template])
    (folder / "users.acl").write_text(text + "user test on >test-password ~* &* +@all\n")
    with running_redis(folder, "--aclfile", str(folder / "users.acl")) as port:
        yield port


def url(port: int, user: str) -> str:
    return f"redis://{user}:{user}-password@127.0.0.1:{port}/0"


class WithRoles(OnRedis):
    """The queue on Redis, where each side is the user of its role."""

    def __init__(self, port: int) -> None:
        super().__init__(url(port, "test"))
        self._port = port

    def broker(self, *args: Any, **settings: Any) -> RedisBroker:
        self.url = url(self._port, "worker")
        return super().broker(*args, **settings)

    def transport(self, **settings: Any) -> RedisTransport:
        self.url = url(self._port, "client")
        return super().transport(**settings)


@pytest.fixture
async def queue(port: int) -> AsyncIterator[WithRoles]:
    queue = WithRoles(port)
    await queue.clear()
    yield queue
    await queue.close()


@pytest.fixture
async def on_redis(queue: WithRoles) -> WithRoles:
    return queue


@pytest.fixture
async def broker(queue: WithRoles) -> AsyncIterator[Broker]:
    broker = queue.broker()
    await broker.open()
    yield broker
    await broker.close()


@pytest.fixture
async def transport(queue: WithRoles) -> AsyncIterator[Transport]:
    transport = queue.transport()
    yield transport
    await transport.close()


async def test_a_producer_submits_and_cancels_and_cannot_read_answers(queue: WithRoles, port: int) -> None:
    producer = RedisTransport(url(port, "producer"))
    job = new_job(idempotency_key="once", tenant="acme")
    try:
        assert await producer.submit([job]) == [job.id]
        assert await producer.cancel(job.id) == "queued"
        for reading in (producer.result(job.id), producer.log(job.id, after=3)):
            with pytest.raises(QueueUnavailable, match="refuses this client"):
                await reading
    finally:
        await producer.close()


async def test_a_whole_worker_needs_no_more(queue: WithRoles, port: int, tmp_path: Path) -> None:
    async with running_queue(tmp_path, url(port, "client")) as running:
        await running.worker(redis_url=url(port, "worker"))
        [short, *_] = jobs = await running.submit("anything", *["sleep 0.1"] * 5)
        [waiting] = await running.submit("wait", stream=True, tenant="acme")
        await running.running(waiting)
        await running.client.cancel(waiting)
        results = await running.results([*jobs, waiting])
    assert [result.status.value for result in results] == ["completed"] * 6 + ["cancelled"]
    assert await queue.read(short, "state") == "completed"


async def test_a_reader_reads_and_cannot_submit_or_cancel(queue: WithRoles, port: int, broker: Broker) -> None:
    job = new_job()
    await queue.transport().submit([job])
    reader = RedisTransport(url(port, "reader"))
    try:
        async with reader.subscribe(job.id) as published:
            await broker.settle([ending(delivery) for delivery in await broker.take(1)])
            assert await anext(published)
        assert await reader.state(job.id) == "completed"
        assert await reader.result(job.id)
        assert await reader.log(job.id)
        assert await reader.workers() == []
        for writing in (reader.submit([new_job()]), reader.cancel(job.id)):
            with pytest.raises(QueueUnavailable, match="refuses this client"):
                await writing
    finally:
        await reader.close()


async def test_a_reader_checks_a_silent_stream_by_its_count(queue: WithRoles, port: int) -> None:
    async def counts() -> int:
        stats: dict[str, Any] = await queue.call("INFO", "commandstats")
        return int(stats.get("cmdstat_hget", {}).get("calls", 0))

    reader = RedisTransport(url(port, "reader"), silence=0.01)
    try:
        async with asyncio.timeout(20), reader.subscribe("quiet") as published:
            assert await anext(published) is None, "it looks once"
            looking = asyncio.ensure_future(anext(published))
            before = await counts()
            while await counts() < before + 3:
                assert not looking.done(), "it looks again only if the count changes"
            await queue.call("HSET", names.job("quiet"), "seq", 1)
            assert await looking is None
    finally:
        await reader.close()


async def test_an_operator_does_every_verb(queue: WithRoles, port: int, broker: Broker) -> None:
    await queue.transport().submit([new_job(id="dead-1"), new_job(id="dead-2")])
    await broker.settle([ending(delivery, Dead(FAILURE)) for delivery in await broker.take(2)])
    await broker.extend(b'{"pid": 1}')
    operator = RedisOperator(url(port, "operator"))
    try:
        assert (await operator.status(await operator.lanes())).dead == 2
        assert [one.worker for one in await operator.workers()] == ["worker-1"]
        letters = await operator.letters(10)
        assert await operator.find("dead-1")
        assert [code.name for code in await operator.redrive(letters[:1])] == ["YES"]
        assert await operator.purge(letters[1:]) == 1
        assert await operator.pause("bulk")
        assert await operator.resume("bulk")
    finally:
        await operator.close()


NOBODY = [
    ("FLUSHALL",),
    ("FLUSHDB",),
    ("KEYS", "*"),
    ("CONFIG", "GET", "*"),
    ("CONFIG", "SET", "maxmemory-policy", "allkeys-lru"),
    ("DEBUG", "SLEEP", "0"),
    ("SCRIPT", "FLUSH"),
    ("SHUTDOWN", "NOSAVE"),
    ("ACL", "LIST"),
    ("CLIENT", "LIST"),
    ("CLIENT", "KILL", "TYPE", "normal"),
    ("MONITOR",),
    ("REPLICAOF", "192.0.2.1", "6379"),
    ("MODULE", "LIST"),
    ("SAVE",),
    ("SWAPDB", "0", "1"),
    ("MIGRATE", "192.0.2.1", "6379", "a", "0", "1"),
    ("GET", "somebody-elses"),
    ("EVAL", "return redis.call('KEYS', '*')", "0"),
    ("EVAL", "return redis.call('GET', KEYS[1])", "1", "somebody-elses"),
    ("PUBLISH", "somebody-elses", "x"),
    ("PSUBSCRIBE", "*"),
]
DENIED = {
    "producer": [
        ("GET", names.result("a")),
        ("XRANGE", names.log("a"), "-", "+"),
        ("XREAD", "STREAMS", names.log("a"), "0"),
        ("SUBSCRIBE", names.events("a")),
        ("XDEL", LANE, "1-1"),
        ("XTRIM", LANE, "MAXLEN", "0"),
        ("DEL", LANE),
        ("DEL", JOB),
        ("XGROUP", "DESTROY", LANE, names.GROUP),
        ("XREADGROUP", "GROUP", names.GROUP, "w", "STREAMS", LANE, ">"),
        ("SET", names.live("w"), "1"),
        ("SADD", names.paused(), "bulk"),
        ("XRANGE", names.dead(), "-", "+"),
        ("HGETALL", names.workers()),
        ("SCAN", "0"),
        ("EVAL", "return redis.call('GET', KEYS[1])", "1", names.result("a")),
    ],
    "reader": [
        ("SET", names.result("a"), "x"),
        ("HSET", JOB, "state", "completed"),
        ("DEL", names.result("a")),
        ("XADD", LANE, "*", "j", "{}"),
        ("XADD", names.log("a"), "*", "e", "{}"),
        ("XRANGE", LANE, "-", "+"),
        ("XRANGE", names.dead(), "-", "+"),
        ("GET", names.idempotency("a")),
        ("PUBLISH", names.events("a"), "x"),
        ("SUBSCRIBE", names.CONTROL),
        ("EVALSHA", "0" * 40, "0"),
        ("SCAN", "0"),
    ],
    "client": [
        ("XDEL", LANE, "1-1"),
        ("XTRIM", LANE, "MAXLEN", "0"),
        ("DEL", JOB),
        ("XREADGROUP", "GROUP", names.GROUP, "w", "STREAMS", LANE, ">"),
        ("SET", names.live("w"), "1"),
        ("XRANGE", names.dead(), "-", "+"),
        ("SCAN", "0"),
    ],
    "worker": [
        ("GET", names.idempotency("a")),
        ("SET", names.idempotency("a"), "x"),
        ("XTRIM", LANE, "MAXLEN", "0"),
        ("SADD", names.paused(), "bulk"),
        ("SREM", names.paused(), "bulk"),
        ("RENAME", LANE, JOB),
        ("EXPIRE", LANE, "1"),
        ("SCAN", "0"),
    ],
    "operator": [("SET", "somebody-elses", "x"), ("SUBSCRIBE", "somebody-elses"), ("SORT", LANE)],
}


DENIED_SINCE_7 = {
    "producer": [
        ("SET", LANE, "x"),
        ("PEXPIRE", LANE, "1"),
        ("HSET", LANE, "x", "y"),
        ("SET", names.bell(), "x"),
        ("SET", names.tenants("bulk"), "x"),
        ("SET", JOB, "x"),
        ("XADD", names.delayed(), "*", "x", "y"),
        ("GET", LANE),
    ],
    "client": [
        ("SET", LANE, "x"),
        ("PEXPIRE", LANE, "1"),
        ("SET", names.result("a"), "x"),
        ("HSET", names.result("a"), "x", "y"),
        ("PEXPIRE", names.result("a"), "1"),
        ("XADD", names.log("a"), "*", "e", "{}"),
        ("PEXPIRE", names.log("a"), "1"),
        ("EVAL", "return redis.call('SET', KEYS[1], 'x')", "1", names.result("a")),
        ("EVAL", "return redis.call('SET', KEYS[1], 'x')", "1", LANE),
    ],
}


@pytest.mark.parametrize("user", DENIED_SINCE_7)
def test_only_redis_7_denies_these_commands(port: int, template: str, user: str) -> None:
    for command in DENIED_SINCE_7[user]:
        assert _is_denied(port, user, command) == (template == "users-7.acl"), command


@pytest.mark.parametrize("user", USERS)
def test_these_commands_are_denied_to_every_user(port: int, user: str) -> None:
    for command in NOBODY:
        assert _is_denied(port, user, command), command


@pytest.mark.parametrize("user", DENIED)
def test_each_user_is_denied_the_commands_of_the_others(port: int, user: str) -> None:
    for command in DENIED[user]:
        assert _is_denied(port, user, command), command


def test_redis_requires_a_password(port: int) -> None:
    once = redis.retry.Retry(redis.backoff.NoBackoff(), 0)
    with redis.Redis(port=port, protocol=2, retry=once) as stranger, pytest.raises(redis.AuthenticationError):
        stranger.ping()


def test_a_template_with_placeholders_does_not_start(tmp_path: Path, template: str) -> None:
    (tmp_path / "users.acl").write_text(TEMPLATES[template])
    with pytest.raises(pytest.fail.Exception), running_redis(tmp_path, "--aclfile", str(tmp_path / "users.acl")):
        pass


def test_every_role_is_tested() -> None:
    assert set(USERS) == set(DENIED) == set(re.findall(r"^user (\w+) on", TEMPLATES["users-7.acl"], re.M))


def test_the_file_for_redis_7_gives_producers_no_key_that_all_their_commands_may_touch() -> None:
    for line in TEMPLATES["users-7.acl"].splitlines()[1:4]:
        assert "~" not in re.sub(r"\(.*?\)", "", line), line[:20]


_DENIALS = (
    *("can't run this command", "can't access at least one of the keys", "command not allowed"),
    *("No permissions", "NOPERM"),
)


def _is_denied(port: int, user: str, command: tuple[str, ...]) -> bool:
    with redis.Redis.from_url(url(port, user), protocol=2) as client:
        try:
            client.execute_command(*command)
        except NoPermissionError:
            return True
        except redis.ResponseError as error:
            # a command that a script may not run appears in the script's error message
            return any(words in str(error) for words in _DENIALS)
    return False
