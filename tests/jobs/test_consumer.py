import asyncio
from collections.abc import AsyncIterator

import pytest

from stoop_worker.jobs.broker import Delivery
from stoop_worker.jobs.consumer import Consumer, Permits
from stoop_worker.jobs.outcome import Cancelled, Outcome, Released
from stoop_worker.metrics import Metrics
from tests.support.engine import Tally
from tests.support.recording_broker import RecordingBroker, delivery


class HeldExecutor:
    """An executor that holds every delivery until the test lets it end."""

    def __init__(self) -> None:
        self.started = Tally()
        self.running: dict[str, asyncio.Event] = {}
        self.most = 0
        self.ended: dict[str, Outcome] = {}

    async def execute(self, held: Delivery, broken_off: "asyncio.Future[Outcome]") -> None:
        executor = self.running[held.job_id] = asyncio.Event()
        self.most = max(self.most, len(self.running))
        self.started.add()
        opened = asyncio.create_task(executor.wait())
        await asyncio.wait({opened, broken_off}, return_when=asyncio.FIRST_COMPLETED)
        opened.cancel()
        del self.running[held.job_id]
        if broken_off.done():
            self.ended[held.job_id] = broken_off.result()


@pytest.fixture
async def executor() -> HeldExecutor:
    return HeldExecutor()


@pytest.fixture
async def broker() -> RecordingBroker:
    return RecordingBroker([delivery(str(number)) for number in range(10)])


@pytest.fixture
async def ready() -> asyncio.Event:
    ready = asyncio.Event()
    ready.set()
    return ready


@pytest.fixture
async def consumer(broker: RecordingBroker, executor: HeldExecutor, ready: asyncio.Event) -> AsyncIterator[Consumer]:
    consumer = Consumer(broker, executor, permits=Permits(4), metrics=Metrics(), ready=ready)  # type: ignore[arg-type]
    running = asyncio.create_task(consumer.run())
    yield consumer
    consumer.drain()
    await running


async def end_all(executor: HeldExecutor, count: int) -> None:
    """Let the runs end one after the other until `count` have started, then the rest."""
    await executor.started.wait_for(4)
    while executor.started.count < count:
        started = executor.started.count
        next(iter(executor.running.values())).set()
        await executor.started.wait_for(started + 1)
    for running in list(executor.running.values()):
        running.set()


async def test_never_more_in_flight_than_permits(
    consumer: Consumer, broker: RecordingBroker, executor: HeldExecutor
) -> None:
    await end_all(executor, 10)
    assert executor.most == 4
    assert broker.bursts[0] == 4


async def test_a_job_submitted_while_it_waits_is_claimed(
    consumer: Consumer, broker: RecordingBroker, executor: HeldExecutor
) -> None:
    await end_all(executor, 10)
    await broker.waiting.wait()
    broker.put(delivery("late"))
    await executor.started.wait_for(11)
    executor.running["late"].set()


async def test_a_drain_claims_nothing_new_finishes_in_grace_and_releases_the_rest(
    consumer: Consumer, broker: RecordingBroker, executor: HeldExecutor
) -> None:
    await executor.started.wait_for(4)
    consumer.drain()
    executor.running["0"].set()
    await consumer.finish(grace=0.05)
    assert executor.ended == dict.fromkeys("123", Released())
    assert len(broker.queue) == 6


async def test_a_drain_ends_as_soon_as_the_last_job_has(consumer: Consumer, executor: HeldExecutor) -> None:
    await executor.started.wait_for(4)
    consumer.drain()
    finishing = asyncio.create_task(consumer.finish(grace=3600))
    for running in list(executor.running.values()):
        running.set()
    await finishing
    assert executor.ended == {}


async def test_stop_now_releases_at_once(consumer: Consumer, executor: HeldExecutor) -> None:
    await executor.started.wait_for(4)
    consumer.drain()
    finishing = asyncio.create_task(consumer.finish(grace=3600))
    consumer.stop_now()
    await finishing
    assert executor.ended == dict.fromkeys("0123", Released())


async def test_an_aborted_run_frees_its_permit(consumer: Consumer, executor: HeldExecutor) -> None:
    await executor.started.wait_for(4)
    consumer.cancel("2")
    consumer.break_off(delivery("2"), Released())  # too late
    consumer.cancel("never seen")
    await executor.started.wait_for(5)
    assert executor.ended == {"2": Cancelled()}
    for running in list(executor.running.values()):
        running.set()


async def test_nothing_is_claimed_while_the_engine_is_not_ready(
    consumer: Consumer, broker: RecordingBroker, executor: HeldExecutor, ready: asyncio.Event
) -> None:
    await executor.started.wait_for(4)
    ready.clear()
    for running in list(executor.running.values()):
        running.set()
    while executor.running:
        await asyncio.sleep(0)
    assert (executor.started.count, len(broker.queue)) == (4, 6)
    ready.set()
    await executor.started.wait_for(8)
    await end_all(executor, 10)


async def test_two_deliveries_of_one_job_are_two_runs(ready: asyncio.Event) -> None:
    first, second = delivery("a"), delivery("a", attempt=2)
    broker, executor = RecordingBroker([first, second]), ByAttempt()
    consumer = Consumer(broker, executor, permits=Permits(4), metrics=Metrics(), ready=ready)  # type: ignore[arg-type]
    running = asyncio.create_task(consumer.run())
    await executor.started.wait_for(2)
    assert consumer.in_flight == 2
    consumer.break_off(first, Released())
    await executor.ended.wait_for(1)
    assert (executor.outcomes, consumer.in_flight) == ({1: Released()}, 1)
    consumer.cancel("a")
    await executor.ended.wait_for(2)
    assert executor.outcomes == {1: Released(), 2: Cancelled()}
    consumer.drain()
    await running


class ByAttempt:
    """An executor whose runs go on until they are aborted."""

    def __init__(self) -> None:
        self.started, self.ended = Tally(), Tally()
        self.outcomes: dict[int, Outcome] = {}

    async def execute(self, held: Delivery, broken_off: "asyncio.Future[Outcome]") -> None:
        self.started.add()
        self.outcomes[held.attempt] = await broken_off
        # the consumer counts it when the task has ended
        asyncio.get_running_loop().call_later(0, self.ended.add)


async def test_permits_are_kept_for_the_first_lane(executor: HeldExecutor, ready: asyncio.Event) -> None:
    broker = RecordingBroker([delivery(str(number), lane="bulk", priority=1) for number in range(3)])
    consumer = Consumer(broker, executor, permits=Permits(4, reserved=1), metrics=Metrics(), ready=ready)  # type: ignore[arg-type]
    running = asyncio.create_task(consumer.run())
    await broker.waiting.wait()
    assert broker.reserved == [1]
    broker.put(delivery("urgent"))
    await executor.started.wait_for(4)
    executor.running["1"].set()  # its end opens a permit to all lanes, without a call
    broker.queue.append(delivery("more", lane="bulk", priority=1))
    await executor.started.wait_for(5)
    assert broker.reserved[1:] == [1, 0]
    for held in list(executor.running.values()):
        held.set()
    consumer.drain()
    await running


async def test_an_end_opens_a_permit_to_all_lanes_while_the_first_is_waited_for(
    executor: HeldExecutor, ready: asyncio.Event
) -> None:
    broker = RecordingBroker([delivery(str(number), lane="bulk", priority=1) for number in range(3)])
    consumer = Consumer(broker, executor, permits=Permits(4, reserved=1), metrics=Metrics(), ready=ready)  # type: ignore[arg-type]
    running = asyncio.create_task(consumer.run())
    await broker.waiting.wait()
    broker.queue.append(delivery("more", lane="bulk", priority=1))  # nobody calls
    executor.running["1"].set()
    await executor.started.wait_for(4)
    for held in list(executor.running.values()):
        held.set()
    consumer.drain()
    await running
