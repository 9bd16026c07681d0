"""Producers and workers read Redis's errors alike: one list of replies, as a server sends them, run against both."""

import pytest
import redis.asyncio

from stoop.errors import NotAQueue, QueueUnavailable, StoopError
from stoop.redis.calls import RedisCalls
from stoop_schemas.redis_replies import REPLIES, Meaning
from stoop_worker import errors as worker_errors
from stoop_worker.jobs.redis.client import RedisClient
from tests.contract.queues import OnRedis
from tests.support.refusing_redis import refusing_redis

CASES = [
    ("LOADING Redis is loading the dataset in memory", Meaning.OUTAGE, "still loading"),
    ("OOM command not allowed when used memory > 'maxmemory'.", Meaning.OUTAGE, "maxmemory"),
    (
        "ERR Error running script (call to f_1): @user_script:9: -OOM command not allowed when full.",
        Meaning.OUTAGE,
        "raise its maxmemory",
    ),
    ("READONLY You can't write against a read only replica.", Meaning.OUTAGE, "name the master"),
    ("MISCONF Redis is configured to save RDB snapshots, but it's unable to persist", Meaning.OUTAGE, "disk"),
    ("NOREPLICAS Not enough good replicas to write.", Meaning.OUTAGE, "min-replicas-to-write"),
    ("MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", Meaning.OUTAGE, "wait"),
    ("CLUSTERDOWN The cluster is down", Meaning.OUTAGE, "wait until each slot"),
    ("CLUSTERDOWN Hash slot not served", Meaning.OUTAGE, "wait until each slot"),
    ("TRYAGAIN Multiple keys request during rehashing of slot", Meaning.OUTAGE, "wait"),
    ("BUSY Redis is busy running a script. You can only call SCRIPT KILL.", Meaning.OUTAGE, "SCRIPT KILL"),
    ("UNBLOCKED force unblock from blocking operation, instance state changed", Meaning.OUTAGE, "new master"),
    ("ERR max number of clients reached", Meaning.OUTAGE, "maxclients"),
    ("NOAUTH Authentication required.", Meaning.REFUSAL, "user and the password"),
    ("WRONGPASS invalid username-password pair or user is disabled.", Meaning.REFUSAL, "user and the password"),
    ("NOPERM User w has no permissions to run the 'get' command", Meaning.REFUSAL, "users.acl"),
    ("ERR ACL failure in script: User w has no permissions to run the 'get' command", Meaning.REFUSAL, "users.acl"),
    ("DENIED Redis is running in protected mode because no password is set", Meaning.REFUSAL, "set a password"),
    ("MOVED 3999 127.0.0.1:6381", Meaning.MISMATCH, "redis+cluster://"),
    ("CROSSSLOT Keys in request don't hash to the same slot", Meaning.MISMATCH, "redis+cluster://"),
]
PRODUCERS = dict.fromkeys(Meaning, QueueUnavailable) | {Meaning.MISMATCH: NotAQueue}
WORKERS = dict.fromkeys(Meaning, worker_errors.QueueUnavailable) | dict.fromkeys(
    [Meaning.REFUSAL, Meaning.MISMATCH], worker_errors.ConfigError
)


@pytest.mark.parametrize(("reply", "meaning", "advice"), CASES, ids=[reply for reply, _, _ in CASES])
async def test_both_sides_explain_a_refusal_by_redis(
    reply: str, meaning: Meaning, advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stoop.redis.calls._MOVING_SECONDS", 0.2)  # a producer asks again while a slot moves
    async with refusing_redis(reply) as url:
        producer, worker = RedisCalls(url), RedisClient(url, timeout=10.0)
        with pytest.raises(StoopError) as raised:
            await producer.call("GET", "any")
        with pytest.raises(worker_errors.WorkerError) as logged:
            await worker.call("GET", "any")
        await producer.close()
        await worker.close()
    assert type(raised.value) is PRODUCERS[meaning]
    assert type(logged.value) is WORKERS[meaning]
    assert str(raised.value) == str(logged.value), "they give the same advice"
    assert advice in str(raised.value)
    assert "is Redis running there" not in str(raised.value), "it has answered"


async def test_both_sides_wait_for_a_redis_that_is_not_there() -> None:
    producer, worker = RedisCalls("redis://127.0.0.1:1/0"), RedisClient("redis://127.0.0.1:1/0", timeout=10.0)
    with pytest.raises(QueueUnavailable, match=r"127\.0\.0\.1:1 cannot be reached .*: is Redis running there\?"):
        await producer.call("GET", "any")
    with pytest.raises(worker_errors.QueueUnavailable, match=r"is Redis running there\?"):
        await worker.call("GET", "any")
    await producer.close()
    await worker.close()


async def test_a_script_that_may_not_do_its_work_is_a_refusal_on_a_real_redis(on_redis: OnRedis) -> None:
    async with redis.asyncio.Redis.from_url(on_redis.url) as operator:
        await operator.execute_command("ACL", "SETUSER", "half", "on", ">word", "~*", "+@all", "-get")
        url = on_redis.url.replace("redis://", "redis://half:word@")
        producer, worker = RedisCalls(url), RedisClient(url, timeout=10.0)
        with pytest.raises(QueueUnavailable, match="refuses this client"):
            await producer.call("EVAL", "return redis.call('GET', 'a')", 0)
        with pytest.raises(worker_errors.ConfigError, match="refuses this client"):
            await worker.call("EVAL", "return redis.call('GET', 'a')", 0)
        await producer.close()
        await worker.close()
        await operator.execute_command("ACL", "DELUSER", "half")


def test_every_reply_has_a_unique_word_or_class_and_advice() -> None:
    known = [name for reply in REPLIES for name in (*reply.words, *reply.classes)]
    assert len(known) == len(set(known))
    assert all(reply.advice for reply in REPLIES)
