import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from stoop.client.job_client import JobClient
from stoop.gateway.follower import Follower
from stoop_schemas.allowed import AllowedBuckets
from stoop_schemas.event import DeltaEvent, FinishedEvent, TerminalEvent
from stoop_schemas.skill import Output, Skill
from tests.producer.scripted import ScriptedTransport, completed


class DefectiveTransport(ScriptedTransport):
    """A queue whose log cannot be read because of a defect."""

    async def log(self, job_id: str, after: int = -1) -> list[bytes]:
        raise ZeroDivisionError


class DefectiveAtTheEnd(ScriptedTransport):
    """A queue whose subscriptions cannot be ended because of a defect."""

    @asynccontextmanager
    async def subscribe(self, job_id: str) -> AsyncIterator[AsyncIterator[bytes | None]]:
        async with super().subscribe(job_id) as published:
            try:
                yield published
            finally:
                raise ZeroDivisionError


def follow(queue: ScriptedTransport) -> Follower:
    return Follower(JobClient(queue, allowed=AllowedBuckets(()), timeout_seconds=60.0), "mine")


async def test_a_defect_is_raised_to_the_waiting_reader() -> None:
    follower = follow(DefectiveTransport())
    async with asyncio.timeout(30):
        with pytest.raises(ZeroDivisionError):
            await follower.next()


async def test_a_defect_after_the_last_event_does_not_displace_the_answer() -> None:
    queue = DefectiveAtTheEnd()
    result = completed("mine", Skill.QUERY, Output(answer="two"))
    queue.publish(DeltaEvent(id="mine", seq=0, text="two"), FinishedEvent(id="mine", seq=1, attempt=1, result=result))
    follower = follow(queue)
    async with asyncio.timeout(30):
        await asyncio.wait({follower._task})  # the clean-up has failed before the reader comes
        assert isinstance(await follower.next(), DeltaEvent)
        assert isinstance(await follower.next(), TerminalEvent)
        with pytest.raises(ZeroDivisionError):
            await follower.next()


async def test_a_follower_ends_when_its_clean_up_fails_and_its_reader_left() -> None:
    queue = DefectiveAtTheEnd()
    queue.publish(*(DeltaEvent(id="mine", seq=seq, text="a") for seq in range(100)))
    follower = follow(queue)
    async with asyncio.timeout(30):
        while not follower._events.full():
            await asyncio.sleep(0)
        await asyncio.wait({follower.close()})
