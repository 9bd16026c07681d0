import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from stoop import AsyncClient, EncodedImage, InvalidJob, JobFailed, QueueFull, TimedOut
from stoop.config import ProducerConfig
from stoop.errors import QueueUnavailable, StoopError
from stoop_schemas.event import StartedEvent
from stoop_schemas.failure import Failure, FailureCode
from stoop_schemas.job import Job
from stoop_schemas.skill import Skill
from stoop_schemas.state import State
from tests.producer.scripted import ScriptedTransport, answer, failing

IMAGE = "s3://photos/cat.jpg"
ASKED = Job(id="mine", skill=Skill.QUERY, question="how many?")


def connect(transport: ScriptedTransport, *, cancel_on_exit: bool = False, **config: Any) -> AsyncClient:
    return AsyncClient(ProducerConfig(**config), transport=transport, cancel_on_exit=cancel_on_exit)


@pytest.mark.parametrize(
    ("state", "advice"),
    [
        ("queued", "is a worker running"),
        ("running", "it is running: result.. waits again, with a longer timeout"),
        ("delayed", "will be tried again"),
        (None, "does not know it"),
        ("completed", "it is completed: result"),
    ],
)
async def test_a_timeout_names_the_job_its_state_and_advice(state: str | None, advice: str) -> None:
    transport = ScriptedTransport()
    if state:
        transport.states["mine"] = state
    async with connect(transport) as client:
        with pytest.raises(TimedOut, match=f"job mine after 0.01 s: .*{advice}") as raised:
            await client.result("mine", timeout=0.01)
        with pytest.raises(TimeoutError):
            [event async for event in client.stream("mine", timeout=0.01)]
    assert (raised.value.job_id, raised.value.timeout, raised.value.state) == ("mine", 0.01, state and State(state))


async def test_a_timeout_reports_that_the_job_was_cancelled() -> None:
    transport = ScriptedTransport()
    async with connect(transport) as client:
        job = await client.prepare("caption", IMAGE)
        for waiting in (
            client.result("mine", 0.01, cancel_on_exit=True),
            client.submit_and_wait(job, 0.01, cancel_on_exit=True),
            anext(client.stream("mine", 0.01, cancel_on_exit=True)),
        ):
            with pytest.raises(TimedOut, match=r"it is cancelled.*submit it again with a longer timeout") as raised:
                await waiting
            assert raised.value.cancelled
    assert transport.cancelled == ["mine", job.id, "mine"]


async def test_an_unreachable_queue_does_not_hide_a_timeout() -> None:
    class Mute(ScriptedTransport):
        async def state(self, job_id: str) -> str | None:
            raise QueueUnavailable("gone")

    async with connect(Mute()) as client:
        with pytest.raises(TimedOut, match="mine"):
            await client.result("mine", timeout=0.01)


async def leave_a_stream(client: AsyncClient, **how: Any) -> None:
    events = client.stream("mine", **how)
    await anext(events)
    await events.aclose()


async def leave_a_result(client: AsyncClient, **how: Any) -> None:
    waiting = asyncio.create_task(client.result("mine", **how))
    transport: Any = client._transport
    await transport.subscribed.wait()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)


async def time_out(client: AsyncClient, **how: Any) -> None:
    with pytest.raises(TimedOut):
        await client.result("mine", 0.01, **how)


@pytest.mark.parametrize("leave", [leave_a_stream, leave_a_result, time_out])
@pytest.mark.parametrize(("of_client", "of_call"), [(True, None), (False, True)])
async def test_leaving_cancels_the_job_on_request(
    leave: Callable[..., Any], of_client: bool, of_call: bool | None
) -> None:
    transport = ScriptedTransport()
    async with connect(transport, cancel_on_exit=of_client) as client:
        transport.publish(StartedEvent(id="mine", seq=0, attempt=1))
        await leave(client, cancel_on_exit=of_call)
        assert transport.cancelled == ["mine"]
    assert transport.cancelled == ["mine"]


@pytest.mark.parametrize("leave", [leave_a_stream, leave_a_result, time_out])
@pytest.mark.parametrize(("of_client", "of_call"), [(False, None), (True, False)])
async def test_or_leave_it_to_the_queue(leave: Callable[..., Any], of_client: bool, of_call: bool | None) -> None:
    transport = ScriptedTransport()
    async with connect(transport, cancel_on_exit=of_client) as client:
        transport.publish(StartedEvent(id="mine", seq=0, attempt=1))
        await leave(client, cancel_on_exit=of_call)
    assert transport.cancelled == []


async def test_a_job_whose_end_was_seen_is_not_cancelled() -> None:
    transport = ScriptedTransport(answer)
    async with connect(transport, cancel_on_exit=True) as client:
        await client.query(IMAGE, "how many?")
        text = (await client.caption(IMAGE, stream=True))["caption"]
        assert "".join([piece async for piece in text]) == "shapes on paper"
        transport.script = failing(Failure.of(FailureCode.INTERNAL, "broken"))
        with pytest.raises(JobFailed):
            await client.query(IMAGE, "how many?")
    assert transport.cancelled == []


async def test_closing_cancels_only_the_unfinished_jobs() -> None:
    transport = ScriptedTransport()
    async with connect(transport, cancel_on_exit=True) as client:
        left = [await client.prepare("caption", IMAGE) for _ in range(3)]
        await client.submit_many(left)
        transport.script = answer
        await client.caption(IMAGE)
    assert sorted(transport.cancelled) == sorted(job.id for job in left)
    assert transport.closed == 1


async def test_closing_cancels_the_job_of_a_call_that_asked_for_it() -> None:
    transport = ScriptedTransport()
    client = connect(transport)
    transport.publish(StartedEvent(id="mine", seq=0, attempt=1))
    waiting = asyncio.create_task(client.result("mine", cancel_on_exit=True))
    await transport.subscribed.wait()
    await client.aclose()
    assert transport.cancelled == ["mine"]
    waiting.cancel()
    await asyncio.wait({waiting})
    assert waiting.cancelled()


async def test_a_client_that_closes_while_a_job_is_cancelled_cancels_it_as_well() -> None:
    class Slow(ScriptedTransport):
        cancelling = asyncio.Event()

        async def cancel(self, job_id: str) -> str | None:
            await super().cancel(job_id)
            if len(self.cancelled) == 1:
                self.cancelling.set()
                await asyncio.get_running_loop().create_future()
            return None

    transport = Slow()
    client = connect(transport)
    waiting = asyncio.create_task(client.result("mine", 0.01, cancel_on_exit=True))
    await transport.cancelling.wait()
    await client.aclose()
    assert transport.cancelled == ["mine", "mine"]
    waiting.cancel()
    await asyncio.wait({waiting})


async def test_a_client_closes_without_its_queue() -> None:
    class Gone(ScriptedTransport):
        async def cancel(self, job_id: str) -> str | None:
            raise QueueUnavailable("gone")

    transport = Gone()
    async with connect(transport, cancel_on_exit=True) as client:
        await client.submit(ASKED)
    assert transport.closed == 1


async def test_leaving_a_gathering_cancels_its_jobs_in_flight() -> None:
    transport = ScriptedTransport()
    async with connect(transport, cancel_on_exit=True) as client:
        jobs = [await client.prepare("caption", IMAGE) for _ in range(4)]
        outcomes = client.gather(jobs)
        first = asyncio.create_task(anext(outcomes))
        await transport.subscribed.wait()
        transport.publish(*answer(jobs[0]))
        await first
        await outcomes.aclose()
        assert sorted(transport.cancelled) == sorted(job.id for job in jobs[1:])


async def test_a_stream_continues_after_an_event() -> None:
    transport = ScriptedTransport(answer)
    async with connect(transport) as client:
        await client.submit(ASKED)
        events = [event async for event in client.stream("mine")]
        assert [event async for event in client.stream("mine", after=2)] == events[3:]


async def test_jobs_are_refused_one_by_one() -> None:
    class Small(ScriptedTransport):
        async def submit(self, jobs: "list[Job]") -> list[str]:  # type: ignore[override]
            if len(self.submitted) + len(jobs) > 2:
                raise QueueFull(1.0)
            return await super().submit(jobs)

    wrong = Job(id="wrong", skill=Skill.DETECT, image=IMAGE)
    transport = Small()
    async with connect(transport) as client:
        others = [await client.prepare("caption", IMAGE) for _ in range(3)]
        outcomes = await client.submit_each([wrong, *others])
    assert isinstance(outcomes[0], InvalidJob)
    assert outcomes[1:3] == [job.id for job in others[:2]]
    assert isinstance(outcomes[3], QueueFull)


async def test_the_state_is_reported() -> None:
    transport = ScriptedTransport()
    transport.states["mine"] = "running"
    async with connect(transport) as client:
        assert await client.state("mine") is State.RUNNING
        assert await client.state("other") is None


async def test_an_encoded_image_is_an_image() -> None:
    class MoondreamsOwn:
        image_url = "data:image/jpeg;base64,aaaa"

    transport = ScriptedTransport(answer)
    async with connect(transport) as client:
        encoded = await client.encode_image(IMAGE)
        assert encoded == EncodedImage(IMAGE)
        await client.caption(encoded)
        await client.caption(await client.encode_image(encoded))
        await client.caption(MoondreamsOwn())  # type: ignore[arg-type]
    assert [job.image for job in transport.submitted] == [IMAGE, IMAGE, "data:image/jpeg;base64,aaaa"]


async def test_point_takes_spatial_refs_and_detect_does_not() -> None:
    transport = ScriptedTransport(answer)
    async with connect(transport) as client:
        found = await client.point(IMAGE, "cat", {"max_objects": 1}, spatial_refs=[[0.5, 0.5]])
        assert found == {"points": [{"x": 0.25, "y": 0.75}]}
        with pytest.raises(InvalidJob, match="spatial_refs go with query, point, gaze"):
            await client.prepare("detect", IMAGE, object="cat", spatial_refs=[[0.5, 0.5]])
    assert [job.spatial_refs for job in transport.submitted] == [[(0.5, 0.5)]]


async def test_values_win_over_the_config() -> None:
    config = ProducerConfig(lane="bulk", bucket="photos")
    async with AsyncClient(config, transport=ScriptedTransport(), lane="other") as client:
        assert (client.config.lane, client.config.bucket) == ("other", "photos")
    async with AsyncClient(transport=ScriptedTransport(), lane="third") as client:
        assert client.config.lane == "third"


async def test_an_unknown_state_is_reported() -> None:
    transport = ScriptedTransport()
    transport.states["mine"] = "paused"
    async with connect(transport) as client:
        for call in (client.state, client.cancel):
            with pytest.raises(StoopError, match="a state 'paused'"):
                await call("mine")
