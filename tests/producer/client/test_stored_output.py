import asyncio
from collections.abc import Awaitable, Callable

import pytest

from stoop.client.job_client import JobClient
from stoop.errors import NotFound, OutputGone, OutputUnreadable, TimedOut, UploadFailed
from stoop_schemas.allowed import AllowedBuckets
from stoop_schemas.event import FinishedEvent
from stoop_schemas.result import Result
from stoop_schemas.state import State
from tests.producer.scripted import ScriptedTransport

OWN = "s3://answers/outputs/job-mine/1-7-0.json"


def ended(address: str = OWN) -> ScriptedTransport:
    """A queue with one job, whose output is at an address."""
    transport = ScriptedTransport()
    result = Result(id="mine", status=State.COMPLETED, skill="query", output_address=address)
    transport.publish(FinishedEvent(id="mine", seq=0, attempt=1, result=result))
    return transport


def client_of(transport: ScriptedTransport, read: Callable[[str], Awaitable[bytes]]) -> JobClient:
    return JobClient(transport, allowed=AllowedBuckets(()), timeout_seconds=60.0, read_object=read)


async def stored(address: str) -> bytes:
    return b'{"answer":"a cat"}'


async def slow(address: str) -> bytes:
    await asyncio.Event().wait()
    raise AssertionError


@pytest.mark.parametrize("absent", [True, False])
async def test_a_deleted_output_and_an_unreachable_store_are_different_errors(absent: bool) -> None:
    async def fail(address: str) -> bytes:
        raise UploadFailed("no", absent=absent)

    client = client_of(ended(), fail)
    for reading in (client.result("mine"), client.stored_result("mine"), anext(client.stream("mine"))):
        with pytest.raises(OutputGone if absent else UploadFailed) as raised:
            await reading
        assert isinstance(raised.value, NotFound) is absent


@pytest.mark.parametrize(
    "address",
    [
        "s3://answers/outputs/job-other/1-7-0.json",
        "s3://answers/job-mine-0/1-7-0.json",
        "s3://job-mine/1-7-0.json",
        "s3://answers/another-job-mine/1-7-0.json",
        "/job-mine/1-7-0.json",
    ],
)
async def test_only_an_output_of_the_job_itself_is_read(address: str) -> None:
    asked = []

    async def read(address: str) -> bytes:
        asked.append(address)
        return await stored(address)

    with pytest.raises(OutputUnreadable, match="mine"):
        await client_of(ended(address), read).result("mine")
    assert asked == []
    for own in (OWN, "s3://answers/job-mine/1-7-0.json"):
        result = await client_of(ended(own), read).result("mine")
        assert result.output is not None and result.output.answer == "a cat"


async def test_a_completed_job_whose_output_comes_too_late_is_not_cancelled() -> None:
    transport = ended()
    client = client_of(transport, slow)
    for waiting in (
        client.result("mine", 0.01, cancel_on_exit=True),
        anext(client.stream("mine", 0.01, cancel_on_exit=True)),
    ):
        with pytest.raises(TimedOut) as raised:
            await waiting
        assert not raised.value.cancelled
    assert transport.cancelled == []


async def test_the_number_of_the_last_event_is_known_without_the_output() -> None:
    client = client_of(ended(), slow)
    async with asyncio.timeout(30):
        assert (await client.last_seq("mine"), await client.last_seq("other")) == (0, None)
