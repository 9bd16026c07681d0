"""Behaviour that only the broker on a real Redis shows: restarts, lost replies, settings and errors of the server."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from urllib.parse import urlsplit

import pytest
from structlog.testing import capture_logs

import stoop
from stoop.demo.embedded import EmbeddedRedis
from stoop_schemas import names
from stoop_schemas.failure import Failure, FailureCode
from stoop_worker.errors import ConfigError, QueueFault, QueueUnavailable
from stoop_worker.jobs.broker import EventGroup, Isolation
from stoop_worker.jobs.outcome import Cancelled, Completed, Crashed, Dead, Outcome, Released, Retry
from stoop_worker.jobs.redis.broker import BrokerConfig, RedisBroker
from tests.contract.queues import OnRedis, crash_under, ending, new_job, open_broker
from tests.support.lossy_network import LossyNetwork, lossy_network

SOON = 10.0
FAILURE = Failure.of(FailureCode.INTERNAL, "it broke")


@pytest.fixture
async def queue(redis_url: str) -> AsyncIterator[OnRedis]:
    queue = OnRedis(redis_url)
    yield queue
    await queue.close()


@pytest.fixture
async def broker(queue: OnRedis) -> RedisBroker:
    broker = queue.broker()
    await broker.open()
    return broker


@pytest.fixture
async def network(redis_url: str) -> AsyncIterator[LossyNetwork]:
    port = urlsplit(redis_url).port
    assert port
    async with lossy_network("127.0.0.1", port) as network:
        yield network


@pytest.fixture
async def far_broker(network: LossyNetwork) -> AsyncIterator[RedisBroker]:
    broker = RedisBroker(BrokerConfig(url=f"redis://127.0.0.1:{network.port}/0", worker="worker-1"))
    await broker.open()
    yield broker
    await broker.close()


@pytest.mark.parametrize(
    "wrong",
    [
        {"lanes": ("a b",)},
        {"lanes": ()},
        {"lanes": ("a", "a")},
        {"worker": "{w}"},
        {"partitions": ()},
        {"partitions": (1, 1)},
        {"lease": 0.0},
        {"small_batch": 0},
        {"tenant_limit": 0},
        {"lanes": ("interactive", "quarantine:small")},
    ],
)
def test_a_configuration_that_cannot_work_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        replace(BrokerConfig(url="redis://localhost", worker="w"), **wrong)  # type: ignore[arg-type]


async def test_a_redis_that_may_evict_jobs_is_refused(queue: OnRedis) -> None:
    await queue.call("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    try:
        with pytest.raises(ConfigError, match=r"allkeys-lru.*set maxmemory-policy noeviction"):
            await queue.broker().open()
    finally:
        await queue.call("CONFIG", "SET", "maxmemory-policy", "noeviction")


async def test_a_full_redis_takes_no_new_jobs_and_lets_running_ones_end(queue: OnRedis, broker: RedisBroker) -> None:
    transport = queue.transport()
    ids = await transport.submit([new_job(), new_job()])
    [held] = await broker.take(1)
    await queue.call("CONFIG", "SET", "maxmemory", "1")
    try:
        with pytest.raises(stoop.QueueUnavailable):
            await transport.submit([new_job()])
        await broker.extend()
        assert await broker.append([EventGroup(held, 1, (b"e",))]) == [True]
        assert await broker.take(1) == [], "what it must store beyond its limit is bounded by the jobs in flight"
        assert await broker.settle([ending(held, seq=2)]) == [True]
        assert await transport.result(ids[0]) == b"result"
    finally:
        await queue.call("CONFIG", "SET", "maxmemory", "0")
    assert [each.job_id for each in await broker.take(1)] == ids[1:]


async def test_a_redis_that_may_evict_results_is_warned_of(queue: OnRedis) -> None:
    await queue.call("CONFIG", "SET", "maxmemory-policy", "volatile-lru")
    try:
        with capture_logs() as logs:
            await queue.broker().open()
    finally:
        await queue.call("CONFIG", "SET", "maxmemory-policy", "noeviction")
    assert [entry["policy"] for entry in logs] == ["volatile-lru"]


async def test_the_lease_is_renewed_and_given_back(queue: OnRedis, broker: RedisBroker) -> None:
    live = names.live("worker-1")
    await queue.call("PEXPIRE", live, 1000)
    await broker.extend()
    assert 14_000 < int(await queue.call("PTTL", live)) <= 15_000
    await broker.close()
    assert await queue.call("EXISTS", live) == 0


async def test_a_consumer_that_holds_a_job_is_not_removed(queue: OnRedis, broker: RedisBroker) -> None:
    await queue.transport().submit([new_job()])
    await broker.take(1)
    await broker.close()
    groups = await queue.call("XPENDING", names.lane("interactive"), names.GROUP)
    assert groups["pending"] == 1


async def test_a_worker_outlives_a_restart_of_redis(
    queue: OnRedis, broker: RedisBroker, redis_server: EmbeddedRedis
) -> None:
    transport = queue.transport()
    ids = await transport.submit([new_job()])
    [held] = await broker.take(1)
    waiting = asyncio.create_task(broker.wait(60.0))
    assert await broker.take(1) == []
    redis_server.kill()
    assert await broker.take(1) == []
    for write in (broker.extend(), broker.append([EventGroup(held, 1, (b"e",))]), broker.settle([ending(held)])):
        with pytest.raises(QueueUnavailable):
            await write
    assert not waiting.done()
    redis_server.restart()
    assert await broker.append([EventGroup(held, 1, (b"e",))]) == [True]
    assert await broker.settle([ending(held, seq=2)]) == [True]
    assert await transport.result(ids[0]) == b"result"
    ids = await transport.submit([new_job()])
    async with asyncio.timeout(SOON):
        await waiting
    assert [delivery.job_id for delivery in await broker.take(1)] == ids


async def test_a_wait_without_redis_ends_after_its_timeout(broker: RedisBroker, redis_server: EmbeddedRedis) -> None:
    redis_server.kill()
    try:
        async with asyncio.timeout(SOON):
            await broker.wait(0.2)
    finally:
        redis_server.restart()


async def test_opening_waits_for_redis(queue: OnRedis, redis_server: EmbeddedRedis) -> None:
    redis_server.kill()
    with capture_logs() as logs:
        opening = asyncio.create_task(queue.broker().open())
        async with asyncio.timeout(SOON):
            while not logs:
                await asyncio.sleep(0)
            redis_server.restart()
            await opening
    events = [entry["event"] for entry in logs]
    assert events == ["Redis is not available: this worker waits for it", "Redis is available again"]


async def test_jobs_whose_claim_never_arrived_are_found_again(
    queue: OnRedis, network: LossyNetwork, far_broker: RedisBroker
) -> None:
    ids = await queue.transport().submit([new_job() for _ in range(3)])
    [held] = await far_broker.take(1)
    network.lose_reply_to(b"EVALSHA")
    assert await far_broker.take(2) == []
    async with asyncio.timeout(SOON):
        await far_broker.wait(60.0)
    found = [*await far_broker.take(1), *await far_broker.take(1)]
    assert network.losses == 1
    assert [(delivery.job_id, delivery.attempt) for delivery in (held, *found)] == [(job_id, 1) for job_id in ids]
    assert await far_broker.settle([ending(delivery) for delivery in (held, *found)]) == [True] * 3


async def test_a_small_batch_whose_claim_never_arrived_is_found_again_and_nothing_beside_it(
    queue: OnRedis, network: LossyNetwork, far_broker: RedisBroker
) -> None:
    ids = await queue.transport().submit([new_job() for _ in range(3)])
    await crash_under(far_broker, 3)
    await queue.transport().submit([new_job()])
    assert await far_broker.take(0) == []
    network.lose_reply_to(b"EVALSHA")
    assert await far_broker.take(8) == []
    found = await far_broker.take(8)
    assert [(one.job_id, one.isolation) for one in found] == [(job_id, Isolation.SMALL) for job_id in ids]
    assert await far_broker.settle([ending(one) for one in found]) == [True] * 3


async def test_a_takeover_whose_reply_was_lost_counts_each_crash_once(
    queue: OnRedis, network: LossyNetwork, far_broker: RedisBroker
) -> None:
    [job_id] = await queue.transport().submit([new_job()])
    doomed = queue.broker("doomed")
    await doomed.open()
    await doomed.take(1)
    await queue.call("DEL", names.live("doomed"))
    assert await queue.broker("worker-2").reclaim() == 1
    network.lose_reply_to(b"EVALSHA")
    with pytest.raises(QueueUnavailable):
        await far_broker.reclaim()
    assert await far_broker.reclaim() == 0
    assert await queue.read(job_id, "crashes") == "1"


async def test_a_dead_worker_s_consumer_is_removed_once_it_holds_nothing(queue: OnRedis, broker: RedisBroker) -> None:
    await queue.transport().submit([new_job() for _ in range(3)])
    doomed = queue.broker("doomed")
    await doomed.open()
    await doomed.take(3)
    await queue.call("DEL", names.live("doomed"))
    await broker.reclaim()
    consumers = await queue.call("XINFO", "CONSUMERS", names.lane("interactive"), names.GROUP)
    assert [known[1] for known in consumers] == ["-"], "in no worker's name the jobs wait"


async def test_an_entry_that_was_deleted_is_taken_over_in_silence(queue: OnRedis, broker: RedisBroker) -> None:
    await queue.transport().submit([new_job()])
    doomed = queue.broker("doomed")
    await doomed.open()
    [lost] = await doomed.take(1)
    await queue.call("DEL", names.live("doomed"))
    await queue.call("XDEL", names.lane("interactive"), lost.entry_id)
    assert await broker.reclaim() == 1
    assert (await queue.call("XPENDING", names.lane("interactive"), names.GROUP))["pending"] == 0


async def test_a_worker_that_leaves_gives_up_its_turn_in_the_quarantine(queue: OnRedis, broker: RedisBroker) -> None:
    await queue.transport().submit([new_job()])
    [delivery] = await broker.take(1)
    await broker.settle([ending(delivery, Crashed())])
    assert len(await broker.take(1)) == 1
    assert await queue.call("ZRANGE", names.quarantine_workers(), 0, -1) == ["worker-1"]
    await broker.close()
    assert await queue.call("EXISTS", names.quarantine_workers()) == 0


async def test_a_turn_that_takes_too_long_goes_to_another(queue: OnRedis, broker: RedisBroker) -> None:
    await queue.transport().submit([new_job() for _ in range(2)])
    [held, crashed] = await broker.take(2)
    await broker.settle([ending(crashed, Crashed())])
    assert await broker.take(1) == [], "it must finish what it holds"
    other = queue.broker("worker-2")
    await other.open()
    assert await other.take(1) == []
    ends = float(await queue.call("ZSCORE", names.quarantine_workers(), "worker-1"))
    assert 0 < ends - broker.now() <= 30_000
    await queue.call("ZADD", names.quarantine_workers(), 1, "worker-1")
    assert [one.job_id for one in await other.take(1)] == [crashed.job_id]
    await queue.transport().submit([new_job()])
    assert len(await broker.take(1)) == 1, "it is another's turn, so this worker goes on"
    assert await broker.settle([ending(held)]) == [True]


async def test_a_tenant_without_jobs_leaves_no_keys(queue: OnRedis, broker: RedisBroker) -> None:
    await queue.transport().submit([new_job(tenant="acme")])
    assert await broker.settle([ending(one) for one in await broker.take(1)]) == [True]
    assert await broker.take(1) == []
    assert await queue.call("EXISTS", names.lane("interactive/acme"), names.tenants("interactive")) == 0


async def test_a_cancel_flag_set_before_the_job_does_not_delete_the_job(queue: OnRedis, broker: RedisBroker) -> None:
    transport = queue.transport()
    for job_id in ("submitted", "raw"):
        await transport.cancel(job_id)
    await transport.submit([new_job(id="submitted")])
    await queue.put("interactive", {"j": '{"id": "raw"}'})
    assert {one.verdict for one in await broker.take(2)} == {Cancelled()}
    assert [await queue.call("PTTL", names.job(job_id)) for job_id in ("submitted", "raw")] == [-1, -1]


async def test_entries_without_an_id_in_two_lanes_are_both_kept(queue: OnRedis, broker: RedisBroker) -> None:
    for lane in ("interactive", "bulk"):
        await queue.call("XADD", names.lane(lane), "5-1", "j", "no JSON")
    both = await broker.take(8)
    # the last lane has its share first
    assert {one.lane: one.job_id for one in both} == {"interactive": "5-1.interactive", "bulk": "5-1"}
    await broker.settle([ending(one, Crashed()) for one in both])
    again = await broker.take(8)
    assert {one.job_id for one in again} == {"5-1", "5-1.interactive"}
    assert await broker.settle([ending(one, Dead(FAILURE)) for one in again]) == [True, True]
    assert {job_id for job_id, _ in await queue.dead()} == {"5-1", "5-1.interactive"}


async def test_an_entry_deleted_while_its_claim_was_lost_is_forgotten(
    queue: OnRedis, network: LossyNetwork, far_broker: RedisBroker
) -> None:
    entry = await queue.put("interactive", {"j": "no JSON"})
    network.lose_reply_to(b"EVALSHA")
    await far_broker.take(1)
    await queue.call("XDEL", names.lane("interactive"), entry)
    assert await far_broker.take(1) == []
    assert (await queue.call("XPENDING", names.lane("interactive"), names.GROUP))["pending"] == 0


async def test_a_settlement_whose_reply_was_lost_counts_when_repeated(
    queue: OnRedis, network: LossyNetwork, far_broker: RedisBroker
) -> None:
    transport = queue.transport()
    [_, job_id] = await transport.submit([new_job(), new_job()])
    [first, delivery] = await far_broker.take(2)
    # Redis knows the script from here on
    assert await far_broker.settle([ending(first)]) == [True]
    network.lose_reply_to(b"EVALSHA")
    with pytest.raises(QueueUnavailable):
        await far_broker.settle([ending(delivery)])
    assert await transport.state(job_id) == "completed"
    assert await far_broker.settle([ending(delivery)]) == [True]
    assert await far_broker.settle([ending(delivery)]) == [False]
    assert len(await transport.log(job_id)) == 2


async def test_a_new_group_gives_no_live_worker_s_job_to_another(queue: OnRedis, broker: RedisBroker) -> None:
    await queue.transport().submit([new_job()])
    [held] = await broker.take(1)
    await queue.call("XGROUP", "DESTROY", names.lane("interactive"), names.GROUP)
    other = queue.broker("worker-2")
    await other.open()
    assert await other.take(1) == []
    pending = await queue.call("XPENDING", names.lane("interactive"), names.GROUP)
    assert [consumer["name"] for consumer in pending["consumers"]] == ["worker-1"], "it is pending for its owner again"
    assert await broker.settle([ending(held)]) == [True]
    assert await queue.depth("interactive") == 0


async def test_a_new_group_gives_a_worker_no_job_twice(queue: OnRedis, broker: RedisBroker) -> None:
    await queue.transport().submit([new_job()])
    [held] = await broker.take(1)
    await queue.call("XGROUP", "DESTROY", names.lane("interactive"), names.GROUP)
    assert await broker.take(1) == []
    assert await broker.settle([ending(held)]) == [True]


async def test_a_new_group_gives_a_dead_worker_s_job_to_another(queue: OnRedis, broker: RedisBroker) -> None:
    await queue.transport().submit([new_job()])
    [lost] = await broker.take(1)
    await queue.call("DEL", names.live("worker-1"))
    await queue.call("XGROUP", "DESTROY", names.lane("interactive"), names.GROUP)
    other = queue.broker("worker-2")
    await other.open()
    assert await other.take(1) == [], "it is the dead one's, until it is taken over"
    assert await other.reclaim() == 1
    [delivery] = await other.take(1)
    assert (delivery.job_id, delivery.attempt, delivery.crashes) == (lost.job_id, 2, 1)
    assert await broker.settle([ending(lost)]) == [False]
    assert await other.settle([ending(delivery)]) == [True]


async def test_a_worker_serves_several_partitions(queue: OnRedis) -> None:
    broker = RedisBroker(BrokerConfig(url=queue.url, worker="worker-1", partitions=(0, 3)))
    await broker.open()
    transport = queue.transport()
    await broker.take(9)
    waiting = asyncio.create_task(broker.wait(60.0))
    [far] = await transport.submit([new_job(id=names.new_id(3))])
    async with asyncio.timeout(SOON):
        await waiting
    [near] = await transport.submit([new_job(id=names.new_id(0))])
    deliveries = await broker.take(9)
    assert {delivery.job_id: delivery.partition for delivery in deliveries} == {far: 3, near: 0}
    groups = [EventGroup(delivery, 1, (b"e",)) for delivery in deliveries]
    assert await broker.append(groups) == [True, True]
    assert await broker.settle([ending(delivery, seq=2) for delivery in deliveries]) == [True, True]
    assert [await transport.result(job_id) for job_id in (far, near)] == [b"result", b"result"]
    await broker.close()


async def test_a_worker_of_many_partitions_waits_on_one_connection(queue: OnRedis) -> None:
    before = (await queue.call("INFO", "clients"))["connected_clients"]
    broker = RedisBroker(BrokerConfig(url=queue.url, worker="worker-1", partitions=(0, 1, 2, 3)))
    await broker.open()
    waiting = asyncio.create_task(broker.wait(SOON))
    assert await broker.take(1) == []
    job = new_job(id=names.new_id(3))
    await queue.transport().submit([job])
    await waiting
    assert [one.job_id for one in await broker.take(1)] == [job.id]
    await broker.wait(0.01)
    now = (await queue.call("INFO", "clients"))["connected_clients"]
    assert now - before <= 3, "the broker's two and the producer's"
    await broker.close()


async def test_partitions_take_turns(queue: OnRedis) -> None:
    broker = RedisBroker(BrokerConfig(url=queue.url, worker="worker-1", partitions=(0, 1)))
    await broker.open()
    await queue.transport().submit([new_job(id=names.new_id(i % 2)) for i in range(8)])
    assert {(await broker.take(1))[0].partition for _ in range(2)} == {0, 1}
    await broker.close()


@pytest.mark.parametrize("outcome", [Completed(), Released(), Crashed(), Retry(FAILURE, 60.0), Dead(FAILURE)])
async def test_a_settled_job_is_no_longer_pending(queue: OnRedis, broker: RedisBroker, outcome: Outcome) -> None:
    await queue.transport().submit([new_job()])
    [delivery] = await broker.take(1)
    assert await broker.settle([ending(delivery, outcome)]) == [True]
    assert (await queue.call("XPENDING", names.lane("interactive"), names.GROUP))["pending"] == 0


async def test_the_keys_of_an_ended_job_expire(queue: OnRedis, broker: RedisBroker) -> None:
    [job_id] = await queue.transport().submit([new_job()])
    [delivery] = await broker.take(1)
    await broker.append([EventGroup(delivery, 1, (b"e",))])
    assert 0 < int(await queue.call("PTTL", names.log(job_id))) <= 100_000
    await broker.settle([ending(delivery, seq=2)])
    assert 0 < int(await queue.call("PTTL", names.job(job_id))) <= 100_000
    assert 100_000 < int(await queue.call("PTTL", names.log(job_id))) <= 3_600_000


async def test_a_retry_of_an_entry_that_is_gone_is_not_done(queue: OnRedis, broker: RedisBroker) -> None:
    await queue.transport().submit([new_job()])
    [delivery] = await broker.take(1)
    await queue.call("XDEL", names.lane("interactive"), delivery.entry_id)
    assert await broker.settle([ending(delivery, Retry(FAILURE, 0.0))]) == [False]
    assert await broker.settle([ending(delivery, Completed())]) == [True]


async def test_a_lane_of_the_wrong_type_is_named_once_and_the_others_go_on(queue: OnRedis, broker: RedisBroker) -> None:
    await queue.call("DEL", names.lane("interactive"))
    await queue.call("SET", names.lane("interactive"), "no stream")
    [first, second] = await queue.transport().submit([new_job(lane="bulk"), new_job(lane="bulk")])
    other = queue.broker("worker-2")
    with capture_logs() as logs:
        assert [one.job_id for one in await broker.take(1)] == [first]
        assert [one.job_id for one in await broker.take(1)] == [second]
        await broker.wait(0.01)
        await other.open()
    assert [entry["key"] for entry in logs] == [names.lane("interactive")]
    await queue.call("DEL", names.lane("interactive"))
    [healed] = await queue.transport().submit([new_job()])
    assert [one.job_id for one in await other.take(1)] == [healed]


async def test_a_key_that_two_models_share_is_named_once(queue: OnRedis) -> None:
    broker = await open_broker(queue, "both", None, "qwen3")
    await queue.call("SET", names.delayed(), "x")
    with capture_logs() as logs:
        for _ in range(3):
            await broker.take(1)
    assert [entry["key"] for entry in logs] == [names.delayed()]


async def test_a_job_whose_lane_is_broken_waits_in_the_quarantine_of_its_model(queue: OnRedis) -> None:
    ours, default = [await open_broker(queue, name, model) for name, model in (("ours", "qwen3"), ("default", None))]
    [job_id] = await queue.transport().submit([new_job(model="qwen3")])
    await ours.settle([ending(one, Retry(FAILURE, 0.0)) for one in await ours.take(1)])
    await queue.call("SET", names.lane("qwen3:interactive"), "x")
    assert await default.take(8) == []
    assert [(one.job_id, one.lane) for one in await ours.take(8)] == [(job_id, "qwen3:quarantine:small")]


async def test_a_suspect_whose_model_was_lost_stays_in_the_lanes_of_its_model(queue: OnRedis) -> None:
    doomed, ours, default = [
        await open_broker(queue, name, model)
        for name, model in (("doomed", "qwen3"), ("ours", "qwen3"), ("default", None))
    ]
    [job_id] = await queue.transport().submit([new_job(model="qwen3")])
    await doomed.take(1)
    await queue.call("HDEL", names.job(job_id), "model")
    await queue.change(job_id, spared="1", crashes="1")
    await queue.kill("doomed")
    await ours.reclaim()
    assert await default.take(8) == []
    assert [(one.job_id, one.lane) for one in await ours.take(8)] == [(job_id, "qwen3:quarantine:small")]


@pytest.mark.parametrize("model", ["qwen3", "", "a:b", "*"])
async def test_a_model_that_is_not_its_lane_s_ends_a_job_alone(queue: OnRedis, broker: RedisBroker, model: str) -> None:
    spoilt, whole = await queue.transport().submit([new_job(), new_job()])
    await queue.change(spoilt, model=model)
    refused, claimed = await broker.take(8)
    assert isinstance(refused.verdict, Dead) and "its field model" in refused.verdict.failure.message
    assert (claimed.job_id, claimed.verdict) == (whole, None)


async def test_an_unexpected_error_of_the_server_is_a_fault(queue: OnRedis, broker: RedisBroker) -> None:
    await queue.transport().submit([new_job()])
    [delivery] = await broker.take(1)
    await queue.call("XADD", names.dead(), "18446744073709551615-18446744073709551615", "last", "entry")
    with pytest.raises(QueueFault, match=r"exhausted|equal or smaller"):
        await broker.settle([ending(delivery, Dead(FAILURE))])


async def test_a_redis_that_refuses_the_worker_is_reported(queue: OnRedis) -> None:
    port = urlsplit(queue.url).port
    await queue.call("ACL", "SETUSER", "limited", "on", ">hidden-word", "~*", "&*", "+@all", "-xgroup")
    for user, password in (("limited", "hidden-word"), ("limited", "wrong-word")):
        config = BrokerConfig(url=f"redis://{user}:{password}@127.0.0.1:{port}/0", worker="w")
        broker = RedisBroker(config)
        with pytest.raises(ConfigError, match=rf"127\.0\.0\.1:{port} refuses this client") as refused:
            await broker.open()
        assert password not in f"{refused.value}{config}{broker}"
        await broker.close()
    await queue.call("ACL", "DELUSER", "limited")


@pytest.mark.parametrize(
    "url", ["http://:hidden-word@host", "redis://:hidden-word/@host:6379", "redis://h:hidden-word"]
)
def test_a_url_that_cannot_be_read_shows_no_password(url: str) -> None:
    with pytest.raises(ConfigError) as refused:
        RedisBroker(BrokerConfig(url=url, worker="w"))
    assert "hidden-word" not in str(refused.value)


async def test_no_message_about_an_unreachable_redis_contains_its_password() -> None:
    broker = RedisBroker(BrokerConfig(url="redis://user:hidden-word@127.0.0.1:1/0?client_name=me", worker="w"))
    with capture_logs() as logs:
        assert await broker.take(1) == []
        with pytest.raises(QueueUnavailable, match=r"127\.0\.0\.1:1") as away:
            await broker.extend()
        await broker.close()
    assert logs
    assert "hidden-word" not in f"{logs}{away.value}{broker}"


async def spoil(queue: OnRedis, key: str) -> None:
    """Write a foreign value to a key."""
    kind = await queue.call("TYPE", key)
    await (queue.call("XADD", key, "*", "x", "y") if kind == "stream" else queue.call("SET", key, "nonsense"))


@pytest.mark.parametrize("when", ["before it is claimed", "before its events", "before its end"])
@pytest.mark.parametrize("kind", ["log", "job"])
async def test_foreign_values_in_one_jobs_keys_do_not_affect_other_jobs(
    queue: OnRedis, broker: RedisBroker, when: str, kind: str
) -> None:
    transport = queue.transport()
    ids = [spoilt, _] = await transport.submit([new_job(), new_job()])
    key = {"log": names.log, "job": names.job}[kind](spoilt)
    if when == "before it is claimed":
        await spoil(queue, key) if kind == "log" else await queue.call("SET", key, "nonsense")
    taken = await broker.take(2)
    assert [one.job_id for one in taken] == ids
    if when == "before its events":
        await spoil(queue, key) if kind == "log" else await queue.call("SET", key, "nonsense")
    assert await broker.append([EventGroup(one, one.next_seq, (b"one", b"two")) for one in taken]) == [True, True]
    if when == "before its end":
        await spoil(queue, key) if kind == "log" else await queue.call("SET", key, "nonsense")
    ends = [ending(one, seq=one.next_seq + 2) for one in taken]
    assert await broker.settle(ends) == [True, True]
    assert [await transport.result(job_id) for job_id in ids] == [b"result", b"result"]
    logs = [await transport.log(job_id) for job_id in ids]
    last = [b"last of " + job_id.encode() for job_id in ids]
    assert (logs[0][-1], logs[1][-3:]) == (last[0], [b"one", b"two", last[1]])
    if kind == "log" and when != "before it is claimed":
        assert logs[0] == last[:1], "half a log would tell the wrong text"


async def test_a_job_whose_id_had_a_log_long_ago_begins_a_new_one(queue: OnRedis, broker: RedisBroker) -> None:
    transport, job = queue.transport(), new_job()
    await queue.call("XADD", names.log(job.id), "7-0", "e", "of another life")
    await transport.submit([job])
    [delivery] = await broker.take(1)
    assert await broker.settle([ending(delivery)]) == [True]
    logged = await transport.log(job.id)
    assert (len(logged), logged[-1]) == (2, b"last of " + job.id.encode())


async def test_a_worker_cut_off_for_longer_than_its_lease_learns_which_jobs_it_lost(
    queue: OnRedis, network: LossyNetwork, far_broker: RedisBroker
) -> None:
    broker = queue.broker("worker-2")
    await broker.open()
    ids = await queue.transport().submit([new_job() for _ in range(2)])
    held = await far_broker.take(2)
    network.down = True
    network.cut()
    with pytest.raises(QueueUnavailable):
        await far_broker.settle([ending(held[0])])
    await queue.call("DEL", names.live("worker-1"))
    assert await broker.reclaim() == 2
    taken = await broker.take(2)
    assert await broker.settle([ending(taken[0])]) == [True]
    network.down = False
    assert (await far_broker.extend()).lost == tuple(held)
    assert await far_broker.append([EventGroup(one, one.next_seq, (b"late",)) for one in held]) == [False, False]
    assert await far_broker.settle([ending(one) for one in held]) == [False, False]
    assert await broker.settle([ending(taken[1])]) == [True]
    assert [await queue.transport().state(job_id) for job_id in ids] == ["completed", "completed"]


async def test_a_failover_costs_no_answer(queue: OnRedis, broker: RedisBroker) -> None:
    [job_id] = await queue.transport().submit([new_job()])
    [delivery] = await broker.take(1)
    await queue.call("REPLICAOF", "127.0.0.1", 1)  # the former master takes no more writes
    try:
        with pytest.raises(QueueUnavailable, match=r"READONLY|read only"):
            await broker.settle([ending(delivery)])
        with pytest.raises(QueueUnavailable):
            await broker.extend()
        assert await broker.take(1) == []
    finally:
        await queue.call("REPLICAOF", "NO", "ONE")
    assert (await broker.extend()).lost == ()
    assert await broker.settle([ending(delivery)]) == [True]
    assert await queue.transport().state(job_id) == "completed"


async def test_an_answered_job_that_a_failover_brings_back_is_dropped(queue: OnRedis, broker: RedisBroker) -> None:
    [job_id] = await queue.transport().submit([new_job()])
    [delivery] = await broker.take(1)
    assert await broker.settle([ending(delivery)]) == [True]
    # the new master may lack the end of the stream, and may therefore still have the entry
    await queue.call("DEL", names.lane("interactive"))
    await queue.call("XADD", names.lane("interactive"), delivery.entry_id, "j", delivery.packed)
    assert await broker.take(1) == []
    assert await queue.depth("interactive") == 0
    assert (await queue.transport().log(job_id))[-1] == b"last of " + job_id.encode()
