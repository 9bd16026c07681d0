"""Two models on one queue: whatever happens, the jobs of one never reach a worker of the other."""

import asyncio

import pytest

from stoop.client.transport import Transport
from stoop.errors import IdempotencyConflict, InvalidJob, QueueFull
from stoop_schemas.state import State
from stoop_worker.jobs.broker import Broker, Delivery, Isolation
from stoop_worker.jobs.outcome import Cancelled, Completed, Crashed, Released, Retry
from tests.contract.queues import FAILURE, QueueUnderTest, crash_under, ending, new_job, open_broker

QWEN, MOON = "qwen3", "moondream3"


def ids(deliveries: list[Delivery]) -> list[str]:
    return [delivery.job_id for delivery in deliveries]


async def submit_to(transport: Transport, *models: str | None, lane: str = "interactive") -> None:
    """Submit one job to each; its id is its model's name, `none` without one."""
    await transport.submit([new_job(id=model or "none", model=model, lane=lane) for model in models])


async def complete(broker: Broker, deliveries: list[Delivery]) -> None:
    assert all(await broker.settle([ending(delivery, Completed()) for delivery in deliveries]))


@pytest.mark.parametrize("lane", ["interactive", "bulk", "team:fast"])
async def test_each_worker_finds_the_jobs_of_its_model_alone(queue: QueueUnderTest, lane: str) -> None:
    for model, expected in ((QWEN, QWEN), (MOON, MOON), (None, "none")):
        broker = queue.broker(f"of-{expected}", lanes=(lane,), models=(model,))
        await broker.open()
        await submit_to(queue.transport(), QWEN, MOON, None, lane=lane)
        taken = await broker.take(64)
        assert ids(taken) == [expected]
        await complete(broker, taken)


async def test_the_worker_of_the_default_model_takes_jobs_with_its_name_or_no_name(queue: QueueUnderTest) -> None:
    broker = await open_broker(queue, "default", None, MOON)
    await submit_to(queue.transport(), QWEN, MOON, None)
    await queue.put("interactive", {"j": '{"v":1,"id":"raw","skill":"query","question":"?"}'})
    assert sorted(ids(await broker.take(64))) == [MOON, "none", "raw"]


async def test_jobs_with_and_without_a_model_name_take_turns(queue: QueueUnderTest) -> None:
    broker = await open_broker(queue, "default", None, MOON)
    await queue.transport().submit([new_job(model=model) for model in (MOON, None) for _ in range(8)])
    lanes = [delivery.lane for _ in range(8) for delivery in await broker.take(1)]
    assert lanes.count(f"{MOON}:interactive") == 4


async def test_a_waiting_worker_is_woken_by_each_of_its_models(queue: QueueUnderTest) -> None:
    broker = await open_broker(queue, "default", None, MOON)
    async with asyncio.timeout(20):
        for model in (MOON, None) * 8:
            assert await broker.take(64) == []
            await queue.transport().submit([new_job(model=model)])
            await broker.wait(60)
            await complete(broker, await broker.take(64))


async def test_the_first_lane_of_each_model_goes_first_and_has_the_reserved_permits(queue: QueueUnderTest) -> None:
    broker, transport = await open_broker(queue, "default", None, MOON), queue.transport()
    await transport.submit([new_job(model=model, lane="bulk") for model in (MOON, None) for _ in range(8)])
    assert [delivery.priority for delivery in await broker.take(8, reserved=3)] == [1] * 5
    assert await broker.take(3, reserved=3) == []
    waiting = asyncio.create_task(broker.wait(60))
    await submit_to(transport, None, MOON)
    async with asyncio.timeout(10):
        await waiting
    first = await broker.take(3, reserved=3)
    assert sorted((delivery.lane, delivery.priority) for delivery in first) == [
        ("interactive", 0),
        (f"{MOON}:interactive", 0),
    ]


@pytest.mark.parametrize("outcome", [Retry(FAILURE, 0.0), Released(), Crashed()])
async def test_a_retried_job_keeps_its_model(queue: QueueUnderTest, outcome: Crashed) -> None:
    ours, theirs, default = [
        await open_broker(queue, name, model) for name, model in (("ours", QWEN), ("theirs", MOON), ("default", None))
    ]
    await submit_to(queue.transport(), QWEN)
    for _ in range(2):
        [delivery] = await ours.take(64)
        await ours.settle([ending(delivery, outcome)])
        # every claim moves the due jobs of all models
        assert await theirs.take(64) == [] == await default.take(64)
    assert ids(await ours.take(64)) == [QWEN]


async def test_each_model_has_its_own_quarantine(queue: QueueUnderTest) -> None:
    ours, theirs, default = [
        await open_broker(queue, name, model) for name, model in (("ours", QWEN), ("theirs", MOON), ("default", None))
    ]
    await queue.transport().submit([new_job(id=f"{model}-{n}", model=model) for model in (QWEN, MOON) for n in "abc"])
    for broker in (ours, theirs):
        await crash_under(broker, 3)
    suspects = await ours.take(64)
    assert [(one.job_id, one.isolation) for one in suspects] == [(f"{QWEN}-{n}", Isolation.SMALL) for n in "abc"]
    assert {one.lane for one in suspects} == {f"{QWEN}:quarantine:small"}
    assert await ours.settle([ending(one, Crashed()) for one in suspects]) == [True] * 3
    [alone] = await ours.take(64)
    assert (alone.lane, alone.isolation) == (f"{QWEN}:quarantine:alone", Isolation.ALONE)
    assert await default.take(64) == []
    assert ids(await theirs.take(64)) == [f"{MOON}-{n}" for n in "abc"], "another model's turn is no reason to wait"


async def test_a_suspect_that_dies_alone_is_buried_with_its_model_s_lane(queue: QueueUnderTest) -> None:
    ours = await open_broker(queue, "ours", QWEN)
    await submit_to(queue.transport(), QWEN, lane="bulk")
    for _ in range(3):
        await crash_under(ours, 1)
    [delivery] = await ours.take(1)
    assert delivery.lane == f"{QWEN}:bulk" and delivery.verdict is not None
    assert await ours.settle([ending(delivery, delivery.verdict)]) == [True]
    assert [letter["lane"] for letter in await queue.letters()] == [f"{QWEN}:bulk"]


async def test_only_workers_of_its_model_take_a_dead_worker_s_jobs_over(queue: QueueUnderTest) -> None:
    doomed = await open_broker(queue, "doomed", QWEN)
    theirs, heir = await open_broker(queue, "theirs", MOON, None), await open_broker(queue, "heir", QWEN)
    await submit_to(queue.transport(), QWEN)
    for worker in ("doomed", "heir"):
        taken = await (doomed if worker == "doomed" else heir).take(64)
        assert ids(taken) == [QWEN]
        await queue.kill(worker)
        assert await theirs.reclaim() == 0
        assert await theirs.take(64) == []
        heir = await open_broker(queue, "heir" if worker == "doomed" else "third", QWEN)
        assert await heir.reclaim() == 1
    [suspect] = await heir.take(64)
    assert (suspect.job_id, suspect.lane) == (QWEN, f"{QWEN}:quarantine:small"), "it died twice"
    assert await theirs.take(64) == []


async def test_half_of_a_model_s_workers_run_its_quarantine_regardless_of_other_models(queue: QueueUnderTest) -> None:
    first, second = [await open_broker(queue, name, QWEN) for name in ("first", "second")]
    for n, broker in enumerate((first, second)):
        await broker.extend(b'{"name":"qwen3","serves_default":false}')
        other = await open_broker(queue, f"other-{n}", MOON)
        await other.extend(b'{"name":"moondream3","serves_default":true}')
    await queue.transport().submit([new_job(model=QWEN) for _ in range(40)])
    await crash_under(first, 40)
    assert len(await first.take(64)) == 16
    assert await second.take(64) == [], "one of two goes on with the lanes"


async def test_a_cancelled_job_ends_without_a_worker_of_its_model(
    queue: QueueUnderTest,
) -> None:
    theirs = await open_broker(queue, "theirs", MOON)
    transport = queue.transport()
    await submit_to(transport, QWEN)
    await transport.cancel(QWEN)
    [delivery] = await theirs.take(64)
    assert (delivery.job_id, delivery.verdict) == (QWEN, Cancelled()), "it is to be settled, and not to run"
    await theirs.settle([ending(delivery, Cancelled())])
    assert await transport.state(QWEN) == State.CANCELLED
    assert await queue.depth(f"{QWEN}:interactive") == 0


async def test_a_model_s_lane_has_the_bound_of_the_lane_unless_it_has_its_own(queue: QueueUnderTest) -> None:
    transport = queue.transport(bounds={"bulk": 1, f"{QWEN}:bulk": 2})
    await transport.submit([new_job(model=QWEN, lane="bulk") for _ in range(2)])
    with pytest.raises(QueueFull):
        await transport.submit([new_job(model=QWEN, lane="bulk")])
    await transport.submit([new_job(model=MOON, lane="bulk")])
    with pytest.raises(QueueFull):
        await transport.submit([new_job(model=MOON, lane="bulk")])
    assert [await queue.depth(lane) for lane in ("bulk", f"{QWEN}:bulk", f"{MOON}:bulk")] == [0, 2, 1]


async def test_the_same_key_with_another_model_is_another_job(queue: QueueUnderTest) -> None:
    transport = queue.transport()
    assert await transport.submit([new_job(id="a", model=QWEN, idempotency_key="k")]) == ["a"]
    assert await transport.submit([new_job(id="b", model=QWEN, idempotency_key="k")]) == ["a"]
    with pytest.raises(IdempotencyConflict):
        await transport.submit([new_job(id="c", model=MOON, idempotency_key="k")])


@pytest.mark.parametrize("lane", ["quarantine:small", "qwen3:quarantine:alone"])
async def test_a_producer_cannot_submit_to_a_quarantine(queue: QueueUnderTest, lane: str) -> None:
    with pytest.raises(InvalidJob, match="choose another"):
        await queue.transport().submit([new_job(lane=lane)])


async def test_tenants_of_a_model_take_turns_there(queue: QueueUnderTest) -> None:
    ours = await open_broker(queue, "ours", QWEN)
    tenants = ["loud"] * 4 + ["quiet"] * 2
    await queue.transport().submit([new_job(model=QWEN, tenant=tenant) for tenant in tenants])
    lanes = [delivery.lane for delivery in await ours.take(4)]
    assert sorted(lanes) == [f"{QWEN}:interactive/loud"] * 2 + [f"{QWEN}:interactive/quiet"] * 2


async def test_a_client_learns_which_workers_live(queue: QueueUnderTest) -> None:
    for name in ("ours", "gone"):
        broker = await open_broker(queue, name, QWEN)
        await broker.extend(b'{"name":"qwen3","serves_default":false,"skills":["chat"],"lanes":["qwen3:bulk"]}')
    await queue.kill("gone")
    registered = await queue.transport().registered()
    assert sorted((record.name, alive) for record, alive in registered) == [(QWEN, False), (QWEN, True)]
    [record] = await queue.transport().workers()
    assert (record.name, record.serves_default, record.skills, record.lanes) == (
        QWEN,
        False,
        ("chat",),
        ("qwen3:bulk",),
    )
