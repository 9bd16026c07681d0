import asyncio
import weakref

import numpy as np
import pytest

from stoop_worker.engine.request import Aborted, Caption, Output, Request, TextDelta
from stoop_worker.errors import EngineCrashed, EngineFault
from stoop_worker.images import Crops, Tiling
from stoop_worker.jobs.relay import Relay
from tests.support.engine import ScriptedEngine


async def start(engine: ScriptedEngine) -> Relay:
    relay = Relay(asyncio.get_running_loop())
    engine.deliver = relay.deliver
    relay.attach(engine)
    return relay


async def test_each_request_gets_its_own_outputs_in_order() -> None:
    engine = ScriptedEngine()
    relay = await start(engine)
    heard: dict[str, list[Output]] = {"a": [], "b": []}
    runs = [asyncio.create_task(relay.run(Request(name, Caption()), heard[name].append)) for name in heard]
    await engine.submitted.wait_for(2)
    engine.deliver([TextDelta("a", "1"), TextDelta("b", "2"), TextDelta("a", "3"), engine.finished("a")])
    engine.deliver([engine.finished("b")])
    last = await asyncio.gather(*runs)
    assert heard == {"a": [TextDelta("a", "1"), TextDelta("a", "3")], "b": [TextDelta("b", "2")]}
    assert [output.id for output in last] == ["a", "b"]


async def test_a_cancelled_wait_aborts_in_the_engine_and_late_outputs_are_dropped() -> None:
    engine = ScriptedEngine()
    relay = await start(engine)
    run = asyncio.create_task(relay.run(Request("a", Caption()), lambda output: None))
    await engine.submitted.wait_for(1)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert engine.aborted == ["a"]
    engine.deliver([Aborted("a")])
    await asyncio.sleep(0)


async def test_requests_end_with_their_engine_unless_already_answered() -> None:
    engine = ScriptedEngine()
    relay = await start(engine)
    runs = [asyncio.create_task(relay.run(Request(name, Caption()), lambda output: None)) for name in "abc"]
    await engine.submitted.wait_for(3)
    engine.deliver([engine.finished("a")])
    relay.on_engine_lost(["a", "b"])
    assert (await runs[0]).id == "a"
    with pytest.raises(EngineCrashed):
        await runs[1]
    engine.deliver([engine.finished("c")])
    assert (await runs[2]).id == "c"


async def test_an_id_is_reused_only_after_the_engine_releases_it() -> None:
    engine = ScriptedEngine()
    relay = await start(engine)
    first = asyncio.create_task(relay.run(Request("a", Caption()), lambda output: None))
    await engine.submitted.wait_for(1)
    first.cancel()
    again = asyncio.create_task(relay.run(Request("a", Caption()), lambda output: None))
    await asyncio.wait({first})
    assert len(engine.requests) == 1
    engine.deliver([Aborted("a")])
    await engine.submitted.wait_for(2)
    engine.deliver([engine.finished("a")])
    assert (await again).id == "a"


@pytest.mark.parametrize("cancelled", [False, True])
async def test_a_request_that_waited_for_an_id_gets_its_own_outputs(cancelled: bool) -> None:
    engine = ScriptedEngine()
    relay = await start(engine)
    first = asyncio.create_task(relay.run(Request("a", Caption()), lambda output: None))
    await engine.submitted.wait_for(1)
    again = asyncio.create_task(relay.run(Request("a", Caption()), lambda output: None))
    await asyncio.sleep(0)
    engine.deliver([engine.finished("a", "one")])
    if cancelled:
        await asyncio.sleep(0)
        first.cancel()
    await engine.submitted.wait_for(2)
    await asyncio.wait({first})
    engine.deliver([engine.finished("a", "two")])
    async with asyncio.timeout(5):
        last = await again
    assert last == engine.finished("a", "two")
    assert engine.aborted == []


async def test_an_engine_that_has_ended_takes_nothing() -> None:
    engine = ScriptedEngine(alive=False)
    relay = await start(engine)
    with pytest.raises(EngineFault):
        await relay.run(Request("a", Caption()), lambda output: None)


async def test_a_request_that_runs_is_held_by_the_engine_alone() -> None:
    engine = ScriptedEngine()
    relay = await start(engine)
    crops = Crops(np.zeros((2, 8, 8, 3), dtype=np.uint8), Tiling(1, 1), b"")
    gone = weakref.ref(crops.pixels)
    running = relay.run(Request("a", Caption(), (crops,)), lambda output: None)
    del crops
    run = asyncio.create_task(running)
    await engine.submitted.wait_for(1)
    engine.requests.clear()
    assert gone() is None
    engine.deliver([engine.finished("a")])
    await run
