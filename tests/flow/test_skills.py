"""Every skill, from the client through Redis, S3 and the engine, and back."""

import asyncio
import io

from PIL import Image

from stoop import AsyncClient
from stoop.demo.burst import DemoJob
from stoop.demo.check import is_right
from stoop_schemas.event import DeltaEvent, FinishedEvent, QueuedEvent, StartedEvent
from stoop_schemas.skill import Box, Output
from stoop_schemas.state import State
from tests.flow.conftest import Service

GREEDY = {"temperature": 0.0, "max_tokens": 12, "max_objects": 2}


async def test_each_skill_answers_in_moondreams_shape(client: AsyncClient, service: Service) -> None:
    caption = await client.caption(service.image, "short", settings=GREEDY)
    query = await client.query(service.image, "How many shapes are there?", settings=GREEDY, reasoning=True)
    detect = await client.detect(service.image, "red circle", settings=GREEDY)
    point = await client.point(service.image, "red circle", settings=GREEDY)
    assert isinstance(caption["caption"], str)
    assert isinstance(query["answer"], str)
    assert set(query["reasoning"]) == {"text", "grounding"}
    assert all(set(box) == {"x_min", "y_min", "x_max", "y_max"} for box in detect["objects"])
    assert all(set(place) == {"x", "y"} for place in point["points"])


async def test_the_demos_model_names_and_counts_the_shapes_of_an_image(client: AsyncClient, service: Service) -> None:
    shapes = service.picture.shapes
    greedy = {"temperature": 0.0}
    caption = (await client.caption(service.image, settings=greedy))["caption"]
    assert all(shape.name in caption for shape in shapes)
    assert await client.query(service.image, "How many shapes are there?", settings=greedy) == {
        "answer": str(len(shapes))
    }
    wanted = shapes[0]
    detect = Output(objects=[Box(**box) for box in (await client.detect(service.image, wanted.name))["objects"]])
    assert is_right(DemoJob("detect", service.picture, {"object": wanted.name}), detect)


async def test_a_question_needs_no_image(client: AsyncClient) -> None:
    assert "answer" in await client.query(question="What is two and two?", settings=GREEDY)


async def test_the_pieces_of_a_stream_are_the_whole_answer(client: AsyncClient, service: Service) -> None:
    whole = (await client.caption(service.image, settings=GREEDY))["caption"]
    pieces = [piece async for piece in (await client.caption(service.image, stream=True, settings=GREEDY))["caption"]]
    assert "".join(pieces) == whole


async def test_events_are_numbered_without_gaps_from_queued_to_finished(client: AsyncClient, service: Service) -> None:
    job = await client.prepare("caption", service.image, settings=GREEDY, stream=True)
    await client.submit(job)
    events = [event async for event in client.stream(job.id)]
    late = [event async for event in client.stream(job.id)]
    assert [event.seq for event in events] == list(range(len(events)))
    assert isinstance(events[0], QueuedEvent)
    assert isinstance(events[1], StartedEvent)
    assert isinstance(events[-1], FinishedEvent)
    assert late == events
    text = "".join(event.text for event in events if isinstance(event, DeltaEvent))
    assert events[-1].result.output is not None
    assert text == events[-1].result.output.caption


async def test_an_image_of_the_callers_is_uploaded_first(client: AsyncClient) -> None:
    drawn = io.BytesIO()
    Image.new("RGB", (90, 60), "teal").save(drawn, "PNG")
    assert "caption" in await client.caption(drawn.getvalue(), settings=GREEDY)


async def test_the_same_image_is_encoded_once(client: AsyncClient, service: Service) -> None:
    jobs = [
        await client.prepare("query", service.image, settings=GREEDY, question=f"Is there a shape number {number}?")
        for number in range(4)
    ]
    await client.submit_many(jobs)
    results = await asyncio.gather(*(client.result(job.id) for job in jobs))
    cached = sorted(result.metrics.cached_tokens for result in results)
    assert cached[1] >= 730, "all but the first find the image's prefix"


async def test_hundreds_of_tasks_wait_on_one_client(client: AsyncClient) -> None:
    jobs = [await client.prepare("query", question="?", settings={"max_tokens": 1}) for _ in range(200)]
    await client.submit_many(jobs)
    results = await asyncio.gather(*(client.result(job.id) for job in jobs))
    assert [result.id for result in results] == [job.id for job in jobs]


async def test_a_seed_repeats_an_answer(client: AsyncClient, service: Service) -> None:
    hot = {"temperature": 5.0, "top_p": 1.0, "max_tokens": 12}
    first, again, other = [
        (await client.caption(service.image, settings={**hot, "seed": seed}))["caption"] for seed in (1, 1, 2)
    ]
    assert first == again != other


async def test_custom_id_and_metadata_come_back_with_the_result(client: AsyncClient, service: Service) -> None:
    job = await client.prepare(
        "caption", service.image, settings=GREEDY, custom_id="row 7", metadata={"album": ["x", 1]}, lane="bulk"
    )
    result = await client.result(await client.submit(job))
    assert (result.status, result.custom_id, result.metadata) == (State.COMPLETED, "row 7", {"album": ["x", 1]})
    assert result.model
    assert result.worker
    assert result.metrics.input_tokens > 730
