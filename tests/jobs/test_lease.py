import asyncio
from collections.abc import AsyncIterator

import pytest

from stoop_worker.errors import QueueUnavailable
from stoop_worker.jobs.broker import Held
from stoop_worker.jobs.lease import LeaseKeeper
from stoop_worker.jobs.outcome import Cancelled, Outcome, Released
from tests.support.engine import ScriptedEngine, Tally
from tests.support.recording_broker import RecordingBroker, delivery


class CountingBroker(RecordingBroker):
    def __init__(self) -> None:
        super().__init__()
        self.beats = Tally()
        self.away = False

    async def extend(self, record: bytes = b"") -> Held:
        self.beats.add()
        if self.away:
            raise QueueUnavailable("away")
        return await super().extend(record)


class Keeping:
    """A running keeper, and the deliveries that it aborted."""

    def __init__(self, broker: CountingBroker) -> None:
        self.broker = broker
        self.engine = ScriptedEngine()
        self.broken_off: list[tuple[str, Outcome]] = []
        self.keeper = LeaseKeeper(
            broker,
            self.engine,
            lease=0.03,
            hang=0.02,
            record=lambda: b'{"permits":4}',
            break_off=lambda held, outcome: self.broken_off.append((held.job_id, outcome)),
        )


@pytest.fixture
async def keeping() -> AsyncIterator[Keeping]:
    keeping = Keeping(CountingBroker())
    task = asyncio.create_task(keeping.keeper.run())
    yield keeping
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def beat(keeping: Keeping, beats: int) -> None:
    for _ in range(beats):
        keeping.engine.progress += 1
        await keeping.broker.beats.wait_for(keeping.broker.beats.count + 1)


async def test_the_lease_is_kept_while_the_engine_makes_progress(keeping: Keeping) -> None:
    await beat(keeping, 8)
    assert set(keeping.broker.records) == {b'{"permits":4}'}
    assert keeping.broker.reclaimed >= 7


async def test_a_hung_engine_loses_its_lease(keeping: Keeping) -> None:
    await keeping.broker.beats.wait_for(3)  # the progress stands still from the first on
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(keeping.broker.beats.wait_for(4), timeout=0.1)
    keeping.engine.progress += 1
    await keeping.broker.beats.wait_for(4)


async def test_cancelled_and_lost_jobs_are_aborted(keeping: Keeping) -> None:
    keeping.broker.held = Held(lost=(delivery("a"),), cancelled=(delivery("b"),))
    await beat(keeping, 2)
    assert {("a", Released()), ("b", Cancelled())} <= set(keeping.broken_off)


async def test_after_an_outage_no_job_is_reclaimed_for_one_lease(keeping: Keeping) -> None:
    await beat(keeping, 2)
    keeping.broker.away = True
    await beat(keeping, 2)
    before = keeping.broker.reclaimed
    keeping.broker.away = False
    await beat(keeping, 3)
    assert keeping.broker.reclaimed == before
    await beat(keeping, 3)
    assert keeping.broker.reclaimed > before


async def test_it_continues_after_an_outage_of_redis(keeping: Keeping) -> None:
    keeping.broker.away = True
    await beat(keeping, 2)
    keeping.broker.away = False
    await beat(keeping, 2)
    assert keeping.broker.extended >= 1
