from typing import Any

import msgspec
import pytest

from stoop.client.async_client import AsyncClient
from stoop.errors import JobFailed
from stoop.gateway.follower import Follower
from stoop.gateway.pieces import Pieces
from stoop.kserve.answer import texts_of
from stoop_schemas.failure import Failure, FailureCode
from tests.producer.scripted import Script, ScriptedTransport, answer, failing

QUERY = {"question": "How many?"}


async def texts(script: Script, skill: str, *, stream: bool, **fields: Any) -> list[dict[str, Any]]:
    image = "data:image/png;base64,AAAA"
    async with AsyncClient(transport=ScriptedTransport(script), redis_url="redis://unused") as client:
        job_id = await client.submit(await client.prepare(skill, image, **fields))
        follower = Follower(client, job_id)
        found = [text async for text in texts_of(Pieces(follower), "r1", asked=skill, stream=stream)]
        await follower.close()
    return [msgspec.json.decode(text) for text in found]


async def test_one_text_has_the_whole_answer() -> None:
    (text,) = await texts(answer, "query", stream=False, **QUERY)
    assert "completed" not in text
    assert (text["answer"], text["finish_reason"], text["request_id"]) == ("two red circles", "stop", "r1")
    assert text["metrics"]["input_tokens"] == 740


async def test_only_the_last_chunk_is_completed_and_it_has_the_whole_answer() -> None:
    *chunks, last = await texts(answer, "query", stream=True, **QUERY)
    assert "".join(chunk["chunk"] for chunk in chunks) == last["answer"] == "two red circles"
    assert [chunk["completed"] for chunk in (*chunks, last)] == [False] * len(chunks) + [True]
    assert [chunk["token_index"] for chunk in chunks] == list(range(len(chunks)))


async def test_reasoning_comes_before_the_first_chunk() -> None:
    first, *_, last = await texts(answer, "query", stream=True, reasoning=True, **QUERY)
    assert first == {"reasoning_chunk": "I count."}
    assert last["reasoning"]["text"] == "I count."


async def test_boxes_come_whole_with_the_only_chunk() -> None:
    (last,) = await texts(answer, "detect", stream=True, object="cat")
    assert last["completed"]
    assert len(last["objects"]) == 2


async def test_a_failure_is_raised() -> None:
    with pytest.raises(JobFailed):
        await texts(failing(Failure.of(FailureCode.ENGINE_FAULT, "broke")), "query", stream=True, **QUERY)
