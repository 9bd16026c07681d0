"""Behaviour that only the transport on a real Redis can show: lost connections, settings and errors of the server."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from importlib import resources
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import pytest
import redis

from stoop.client.async_client import AsyncClient
from stoop.client.events import follow
from stoop.config import ProducerConfig
from stoop.demo.embedded import EmbeddedRedis
from stoop.errors import ClientUnusable, ConfigError, NotAQueue, QueueFull, QueueUnavailable
from stoop.redis.transport import RedisTransport
from stoop_schemas import names
from stoop_schemas.codec import pack, unpack_job
from stoop_schemas.event import QueuedEvent
from stoop_schemas.result import Result
from stoop_schemas.signature import SigningKeys
from stoop_schemas.state import State
from tests.contract.queues import OnRedis, new_job
from tests.security.redis_process import running_redis
from tests.support.lossy_network import LossyNetwork, lossy_network

SOON = 10.0


@pytest.fixture
async def queue(redis_url: str) -> AsyncIterator[OnRedis]:
    queue = OnRedis(redis_url)
    yield queue
    await queue.close()


@pytest.fixture
async def network(redis_url: str) -> AsyncIterator[LossyNetwork]:
    port = urlsplit(redis_url).port
    assert port
    async with lossy_network("127.0.0.1", port) as network:
        yield network


@pytest.fixture
async def far(network: LossyNetwork) -> AsyncIterator[RedisTransport]:
    transport = RedisTransport(f"redis://127.0.0.1:{network.port}/0", silence=30.0)
    yield transport
    await transport.close()


async def test_a_submission_whose_reply_was_lost_is_put_once(
    queue: OnRedis, network: LossyNetwork, far: RedisTransport
) -> None:
    await far.submit([new_job()])  # Redis knows the script from here on
    job = new_job()
    network.lose_reply_to(b"EVALSHA")
    assert await far.submit([job]) == [job.id]
    assert network.losses == 1
    assert await queue.depth("interactive") == 2


async def test_a_subscriber_whose_connection_was_cut_is_notified_and_continues(
    queue: OnRedis, network: LossyNetwork, far: RedisTransport
) -> None:
    job = new_job()
    async with far.subscribe(job.id) as published, asyncio.timeout(SOON):
        network.cut()
        assert await anext(published) is None
        await queue.transport().submit([job])
        assert await anext(published) == pack(QueuedEvent(id=job.id, seq=0))


async def test_a_missed_event_is_found_by_its_count(queue: OnRedis) -> None:
    jobs = [new_job(), new_job()]
    transport = queue.transport(silence=0.02)
    await transport.submit(jobs)
    async with asyncio.timeout(SOON), transport.subscribe(jobs[0].id) as one, transport.subscribe(jobs[1].id) as other:
        assert [await anext(one), await anext(other)] == [None, None]
        found = asyncio.ensure_future(anext(other))
        await queue.call("SET", names.job("x-0"), "no hash")  # whatever lies there, the others are counted
        async with transport.subscribe("x-0") as odd:
            assert await anext(odd) is None
        await queue.call("HSET", names.job(jobs[0].id), "seq", 2)
        assert await anext(one) is None
        assert not found.done(), "only the reader whose count changed looks again"
        found.cancel()
        await asyncio.wait({found})


async def test_a_subscriber_gets_events_again_after_a_restart_of_redis(
    queue: OnRedis, redis_server: EmbeddedRedis
) -> None:
    transport, job = queue.transport(), new_job()
    async with transport.subscribe(job.id) as published, asyncio.timeout(SOON):
        redis_server.restart()
        assert await anext(published) is None
        await transport.submit([job])
        assert await anext(published) == pack(QueuedEvent(id=job.id, seq=0))


async def test_a_redis_that_is_away_is_unavailable() -> None:
    transport = RedisTransport("redis://user:hidden-word@127.0.0.1:1/0")
    with pytest.raises(QueueUnavailable, match=r"127\.0\.0\.1:1") as away:
        await transport.submit([new_job()])
    assert "hidden-word" not in f"{away.value}{transport}"
    await transport.close()


async def test_a_closed_transport_takes_no_subscribers(queue: OnRedis) -> None:
    transport = queue.transport()
    await transport.close()
    with pytest.raises(ClientUnusable):
        async with transport.subscribe("any"):
            pass


async def test_a_full_redis_is_unavailable_and_then_not(queue: OnRedis) -> None:
    transport, job = queue.transport(), new_job()
    await queue.call("CONFIG", "SET", "maxmemory", 1)
    try:
        with pytest.raises(QueueUnavailable, match=r"cannot serve now.*maxmemory"):
            await transport.submit([job])
    finally:
        await queue.call("CONFIG", "SET", "maxmemory", 0)
    assert await transport.submit([job]) == [job.id]


async def test_a_redis_that_fails_over_is_unavailable_and_then_not(queue: OnRedis) -> None:
    transport, job = queue.transport(), new_job()
    await queue.call("REPLICAOF", "127.0.0.1", 1)
    try:
        with pytest.raises(QueueUnavailable):
            await transport.submit([job])
    finally:
        await queue.call("REPLICAOF", "NO", "ONE")
    assert await transport.submit([job]) == [job.id]


async def test_a_redis_with_foreign_keys_is_reported_with_advice(queue: OnRedis) -> None:
    transport, job = queue.transport(), new_job()
    await queue.call("SET", names.lane("interactive"), "no stream")
    await queue.call("SET", names.log(job.id), "no stream")
    for call in (transport.submit([job]), transport.log(job.id)):
        with pytest.raises(NotAQueue, match=r"WRONGTYPE.*keys that begin with stoop:"):
            await call


async def test_foreign_entries_of_a_log_are_skipped(queue: OnRedis) -> None:
    for fields in (("e", "an event"), ("x", "something else")):
        await queue.call("XADD", names.log("mine"), "*", *fields)
    assert await queue.transport().log("mine") == [b"an event"]


@pytest.mark.parametrize("seq", ["x", "-1", "9" * 5000])
async def test_a_job_without_its_log_ends_even_if_its_event_count_is_unreadable(queue: OnRedis, seq: str) -> None:
    transport, job = queue.transport(), new_job()
    await transport.submit([job])
    result = Result(id=job.id, status=State.CANCELLED)
    await queue.call("SET", names.result(job.id), pack(result))
    await queue.call("HSET", names.job(job.id), "state", "cancelled", "seq", seq)
    events = [event async for event in follow(transport, job.id, -1)]
    assert [event.type for event in events] == ["cancelled"]


@pytest.mark.parametrize("turns", range(16))
async def test_a_cancellation_is_never_lost(queue: OnRedis, turns: int) -> None:
    transport = queue.transport()
    await transport.result("any")  # it is connected from here on
    call = asyncio.create_task(transport.result("any"))
    for _ in range(turns):
        await asyncio.sleep(0)
    if not call.done():
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
    assert await transport.result("any") is None


@pytest.mark.parametrize("turns", range(24))
async def test_one_subscriber_that_is_cancelled_at_any_moment_ends_and_spares_the_others(
    queue: OnRedis, turns: int
) -> None:
    transport = queue.transport()
    entered: list[int] = []

    async def subscribe(number: int) -> None:
        async with transport.subscribe(f"job-{number}"):
            entered.append(number)
            if number % 2:
                await asyncio.Event().wait()

    async with transport.subscribe("connected"):
        tasks = [asyncio.create_task(subscribe(number)) for number in range(6)]
        for _ in range(turns):
            await asyncio.sleep(0)
        for task in tasks[1::2]:
            task.cancel()
        async with asyncio.timeout(SOON):
            ends = await asyncio.gather(*tasks, return_exceptions=True)
    assert ends[::2] == [None, None, None]
    assert all(isinstance(end, asyncio.CancelledError) for end in ends[1::2])
    assert {0, 2, 4} <= set(entered)


@pytest.mark.parametrize("turns", range(24))
async def test_a_transport_that_follows_a_job_can_be_closed_at_any_moment(queue: OnRedis, turns: int) -> None:
    transport, job = queue.transport(), new_job()
    async with transport.subscribe(job.id):
        submitting = asyncio.create_task(queue.transport().submit([job]))
        for _ in range(turns):
            await asyncio.sleep(0)
        async with asyncio.timeout(SOON):
            await transport.close()
        await submitting


async def test_a_redis_that_refuses_the_client_is_reported(queue: OnRedis, caplog: pytest.LogCaptureFixture) -> None:
    port = urlsplit(queue.url).port
    await queue.call("ACL", "SETUSER", "limited", "on", ">hidden-word", "~*", "+@all", "-get", "resetchannels")
    transport = RedisTransport(f"redis://limited:hidden-word@127.0.0.1:{port}/0")
    with caplog.at_level(logging.DEBUG, "stoop"):
        with pytest.raises(QueueUnavailable, match="refuses this client"):
            await transport.result("any")
        with pytest.raises(QueueUnavailable, match="channel"):
            async with transport.subscribe("any"):
                pass
    await transport.close()
    await queue.call("ACL", "DELUSER", "limited")
    assert "hidden-word" not in caplog.text


async def test_the_wait_for_room_follows_the_age_of_the_lane(queue: OnRedis) -> None:
    # two jobs of which the oldest has waited 40 s: a place comes free every 20 s
    seconds, _ = await queue.call("TIME")
    for i in (40, 1):
        await queue.call("XADD", names.lane("interactive"), f"{1000 * (int(seconds) - i)}-0", "j", "{}")
    with pytest.raises(QueueFull) as full:
        await queue.transport(bounds={"interactive": 2}).submit([new_job()])
    assert 19.0 <= full.value.retry_after <= 22.0


async def test_an_idempotency_key_is_forgotten_in_time(queue: OnRedis) -> None:
    await queue.transport().submit([new_job(idempotency_key="a key")])
    assert 86_000_000 < int(await queue.call("PTTL", names.idempotency("a key"))) <= 86_400_000


async def test_a_job_is_known_by_the_partition_in_its_id(queue: OnRedis) -> None:
    transport, job_id = queue.transport(), names.new_id(5)
    await transport.submit([new_job(id=job_id, idempotency_key="a key")])
    assert await transport.state(job_id) == "queued"
    keys = {await queue.call("EXISTS", key) for key in (names.lane("interactive", 5), names.idempotency("a key", 5))}
    assert keys == {1}


@pytest.mark.parametrize(
    "url", ["http://:hidden-word@host", "redis://:hidden-word/@host:6379", "redis://h:hidden-word"]
)
def test_a_url_that_cannot_be_read_shows_no_password(url: str) -> None:
    with pytest.raises(ConfigError) as refused:
        RedisTransport(url)
    assert "hidden-word" not in str(refused.value)


async def test_a_socket_s_path_is_an_address(tmp_path: object) -> None:
    transport = RedisTransport(f"unix://user:hidden-word@{tmp_path}/no.sock")
    with pytest.raises(QueueUnavailable, match=r"no\.sock") as away:
        await transport.state("any")
    assert "hidden-word" not in str(away.value)
    await transport.close()


async def test_with_keys_jobs_are_signed_and_still_the_same_jobs(redis_url: str) -> None:
    keys = SigningKeys.read(["web:sixteen bytes or more"])
    signing, plain = RedisTransport(redis_url, keys=keys), RedisTransport(redis_url)
    job = new_job(idempotency_key="once")
    try:
        assert await signing.submit([job]) == [job.id]
        again = msgspec.structs.replace(job, id=names.new_id())
        assert await plain.submit([again]) == [job.id], "the signature is no part of what the job is"
    finally:
        await signing.close()
        await plain.close()
    with redis.Redis.from_url(redis_url) as client:
        [(_, fields)] = client.xrange(names.lane("interactive"))
    assert unpack_job(fields[b"j"], keys).id == job.id


async def test_a_client_holds_the_bounds_it_is_configured_with(redis_url: str) -> None:
    config = ProducerConfig(redis_url=redis_url, lane_bounds="interactive=3", tenant_bound=1)
    async with AsyncClient(config) as client:
        await client.submit_many([new_job(tenant="acme"), new_job()])
        with pytest.raises(QueueFull):
            await client.submit(new_job(tenant="acme"))
        await client.submit(new_job())
        with pytest.raises(QueueFull):
            await client.submit(new_job())


async def test_concurrent_subscriptions_and_submissions_share_one_call_each(queue: OnRedis) -> None:
    transport = queue.transport()
    jobs = [new_job() for _ in range(100)]
    async with asyncio.timeout(SOON), contextlib.AsyncExitStack() as stack:
        # it is connected, and Redis knows the script from here on
        await stack.enter_async_context(transport.subscribe("any"))
        await transport.submit([new_job()])
        await queue.call("CONFIG", "RESETSTAT")
        entering = (stack.enter_async_context(transport.subscribe(job.id)) for job in jobs)
        published = await asyncio.gather(*entering)
        assert await asyncio.gather(*(transport.submit([job]) for job in jobs)) == [[job.id] for job in jobs]
        for job, events in zip(jobs, published, strict=True):
            assert await anext(events) == pack(QueuedEvent(id=job.id, seq=0))
        calls = await queue.call("INFO", "commandstats")
    assert (calls["cmdstat_subscribe"]["calls"], calls["cmdstat_evalsha"]["calls"]) == (1, 1)
    assert await queue.depth("interactive") == 101


async def test_submitting_reads_only_the_jobs_own_tenant(queue: OnRedis) -> None:
    transport = queue.transport()
    await transport.submit([new_job(tenant=f"t{i}") for i in range(500)])
    await queue.call("CONFIG", "RESETSTAT")
    for i in range(10):
        await transport.submit([new_job(tenant=f"t{i}")])
    calls = (await queue.call("INFO", "commandstats"))["cmdstat_xlen"]["calls"]
    assert calls == 20, "the lane's own stream and the tenant's, for each"


@pytest.mark.parametrize("held", ["x", "1 2", "-5 1 1", "9" * 400 + " 1 1"])
async def test_an_unreadable_count_of_tenants_is_counted_again(queue: OnRedis, held: str) -> None:
    transport = queue.transport(bounds={"interactive": 3})
    await transport.submit([new_job(tenant="a"), new_job(tenant="b")])
    await queue.call("SET", names.tenant_count("interactive"), held)
    await transport.submit([new_job(tenant="a")])
    await queue.call("DEL", names.tenant_count("interactive"))
    await queue.call("HSET", names.tenant_count("interactive"), "a", held)
    with pytest.raises(QueueFull):
        await transport.submit([new_job(tenant="b")])


async def test_no_script_of_a_producer_puts_a_job_into_the_quarantine(queue: OnRedis) -> None:
    script = (resources.files("stoop.redis") / "scripts" / "submit.lua").read_text()
    keys = [names.quarantine("alone"), "stoop:{0}:a", "stoop:{0}:b", "stoop:{0}:c", names.job("mine")]
    args = [10, 1000, names.quarantine_lane("alone"), 10, "mine", "digest", 0, "channel", "{}", "{}", ""]
    with pytest.raises(redis.ResponseError, match="reserved"):
        await queue.call("EVAL", script, len(keys), *keys, *args)
    assert await queue.depth(names.quarantine_lane("alone")) == 0


async def test_a_replica_without_its_master_is_unavailable(tmp_path: Path) -> None:
    with running_redis(tmp_path, "--replicaof", "127.0.0.1", "1", "--replica-serve-stale-data", "no") as port:
        transport = RedisTransport(f"redis://127.0.0.1:{port}")
        with pytest.raises(QueueUnavailable, match="cannot serve now"):
            await transport.state("any")
        await transport.close()


async def test_a_redis_that_is_busy_with_a_script_is_unavailable(tmp_path: Path) -> None:
    with running_redis(tmp_path, "--lua-time-limit", "1") as port, redis.Redis(port=port, protocol=2) as other:
        transport = RedisTransport(f"redis://127.0.0.1:{port}")
        await transport.state("any")
        looping = asyncio.create_task(asyncio.to_thread(_run_for_ever, port))
        while not looping.done():
            with contextlib.suppress(redis.ResponseError):
                other.ping()
                await asyncio.sleep(0)
                continue
            break
        with pytest.raises(QueueUnavailable, match="cannot serve now"):
            await transport.state("any")
        other.script_kill()
        await looping
        assert await transport.state("any") is None
        await transport.close()


def _run_for_ever(port: int) -> None:
    with redis.Redis(port=port, protocol=2) as connection, contextlib.suppress(redis.ResponseError):
        connection.eval("while true do end", 0)


async def test_a_repeat_may_have_another_wish_about_the_object_store(queue: OnRedis) -> None:
    transport = queue.transport()
    [first] = await transport.submit([new_job(idempotency_key="a key")])
    assert await transport.submit([new_job(idempotency_key="a key", store_output=True)]) == [first]
