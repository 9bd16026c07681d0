import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.support.engine import Tally
from tests.support.recording_broker import RecordingBroker, delivery
from worker.jobs.broker import Delivery
from worker.jobs.consumer import Consumer
from worker.metrics import Metrics


class Gate:
    """An executor that holds every delivery until the test lets it end."""

    def __init__(self) -> None:
        self.started = Tally()
        self.running: dict[str, asyncio.Event] = {}
        self.most = 0
        self.released: list[str] = []

    async def execute(self, held: Delivery) -> None:
        gate = self.running[held.job_id] = asyncio.Event()
        self.most = max(self.most, len(self.running))
        self.started.add()
        try:
            await gate.wait()
        except asyncio.CancelledError:
            self.released.append(held.job_id)
        finally:
            del self.running[held.job_id]


@pytest.fixture
async def gate() -> Gate:
    return Gate()


@pytest.fixture
async def broker() -> RecordingBroker:
    return RecordingBroker([delivery(str(number)) for number in range(10)])


@pytest.fixture
async def consumer(broker: RecordingBroker, gate: Gate) -> AsyncIterator[Consumer]:
    consumer = Consumer(broker, gate, permits=4, metrics=Metrics())  # type: ignore[arg-type]
    running = asyncio.create_task(consumer.run())
    yield consumer
    consumer.drain()
    await running


async def end_all(gate: Gate, count: int) -> None:
    """Let the runs end one after the other until `count` have started, then the rest."""
    await gate.started.wait_for(4)
    while gate.started.count < count:
        started = gate.started.count
        next(iter(gate.running.values())).set()
        await gate.started.wait_for(started + 1)
    for running in list(gate.running.values()):
        running.set()


async def test_never_more_in_flight_than_permits(consumer: Consumer, broker: RecordingBroker, gate: Gate) -> None:
    await end_all(gate, 10)
    assert gate.most == 4
    assert broker.bursts[0] == 4


async def test_what_is_submitted_while_it_waits_is_claimed(
    consumer: Consumer, broker: RecordingBroker, gate: Gate
) -> None:
    await end_all(gate, 10)
    await broker.waiting.wait()
    broker.put(delivery("late"))
    await gate.started.wait_for(11)
    gate.running["late"].set()


async def test_a_drain_claims_nothing_new_finishes_in_grace_and_releases_the_rest(
    consumer: Consumer, broker: RecordingBroker, gate: Gate
) -> None:
    await gate.started.wait_for(4)
    consumer.drain()
    gate.running["0"].set()
    await consumer.finish(grace=0.05)
    assert sorted(gate.released) == ["1", "2", "3"]
    assert len(broker.queue) == 6
