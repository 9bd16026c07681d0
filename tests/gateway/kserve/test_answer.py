from typing import Any

import msgspec
import pytest

from stoop.client.async_client import AsyncClient
from stoop.errors import JobFailed
from stoop.gateway.follower import Follower
from stoop.gateway.kserve.answer import texts_of, whole_text
from stoop.gateway.pieces import Pieces
from stoop_schemas.failure import Failure, FailureCode
from stoop_schemas.skill import Output, Point, Skill
from tests.producer.scripted import CANNED, Script, ScriptedTransport, answer, completed, failing

QUERY = {"question": "How many?"}


async def texts(script: Script, skill: str, **fields: Any) -> list[dict[str, Any]]:
    image = "data:image/png;base64,AAAA"
    async with AsyncClient(transport=ScriptedTransport(script), redis_url="redis://unused") as client:
        job_id = await client.submit(await client.prepare(skill, image, **fields))
        follower = Follower(client, job_id)
        found = [text async for text in texts_of(Pieces(follower), "r1", asked=skill)]
        await follower.close()
    return [msgspec.json.decode(text) for text in found]


def test_one_text_has_the_whole_answer() -> None:
    result = completed("j1", Skill.QUERY, CANNED[Skill.QUERY])
    text = msgspec.json.decode(whole_text(result, "r1", asked="query"))
    assert "completed" not in text
    assert (text["answer"], text["finish_reason"], text["request_id"]) == ("two red circles", "stop", "r1")
    assert text["metrics"]["input_tokens"] == 740


def test_a_gaze_answers_point_as_a_list_and_gaze_as_one_point() -> None:
    result = completed("j1", Skill.GAZE, Output(gaze=Point(0.25, 0.5)))
    assert msgspec.json.decode(whole_text(result, "r1", asked="point"))["points"] == [{"x": 0.25, "y": 0.5}]
    assert msgspec.json.decode(whole_text(result, "r1", asked="gaze"))["gaze"] == {"x": 0.25, "y": 0.5}


async def test_only_the_last_chunk_is_completed_and_it_has_the_whole_answer() -> None:
    *chunks, last = await texts(answer, "query", **QUERY)
    assert "".join(chunk["chunk"] for chunk in chunks) == last["answer"] == "two red circles"
    assert [chunk["completed"] for chunk in (*chunks, last)] == [False] * len(chunks) + [True]
    assert [chunk["token_index"] for chunk in chunks] == list(range(len(chunks)))


async def test_reasoning_comes_before_the_first_chunk() -> None:
    first, *_, last = await texts(answer, "query", reasoning=True, **QUERY)
    assert first == {"reasoning_chunk": "I count."}
    assert last["reasoning"]["text"] == "I count."


async def test_boxes_come_whole_with_the_only_chunk() -> None:
    (last,) = await texts(answer, "detect", object="cat")
    assert last["completed"]
    assert len(last["objects"]) == 2


async def test_a_failure_is_raised() -> None:
    with pytest.raises(JobFailed):
        await texts(failing(Failure.of(FailureCode.ENGINE_FAULT, "broke")), "query", **QUERY)
