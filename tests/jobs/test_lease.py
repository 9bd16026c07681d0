import asyncio

import pytest

from tests.support.engine import ScriptedEngine, Tally
from tests.support.recording_broker import RecordingBroker
from worker.errors import EngineFault
from worker.jobs.lease import LeaseKeeper


class CountingBroker(RecordingBroker):
    def __init__(self) -> None:
        super().__init__()
        self.beats = Tally()

    async def extend(self) -> None:
        await super().extend()
        self.beats.add()


async def test_the_lease_is_kept_while_the_engine_makes_progress() -> None:
    broker, engine = CountingBroker(), ScriptedEngine()
    keeping = asyncio.create_task(LeaseKeeper(broker, engine, lease=0.03).run())
    for beat in range(1, 4):
        await broker.beats.wait_for(beat)
        engine.steps += 1
    keeping.cancel()


async def test_a_hung_engine_loses_its_lease() -> None:
    broker, engine = CountingBroker(), ScriptedEngine()
    keeping = asyncio.create_task(LeaseKeeper(broker, engine, lease=0.003).run())
    await broker.beats.wait_for(1)
    with pytest.raises(TimeoutError):  # steps stands still from here on
        await asyncio.wait_for(broker.beats.wait_for(2), timeout=0.1)
    keeping.cancel()


async def test_the_end_of_the_engine_ends_the_keeping() -> None:
    engine = ScriptedEngine(alive=False)
    with pytest.raises(EngineFault):
        await LeaseKeeper(RecordingBroker(), engine, lease=15).run()
