"""OpenAI's routes, asked by HTTP and by OpenAI's own client."""

import asyncio
import base64
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from stoop.demo.pictures import Picture
from tests.examples.conftest import Deployment
from tests.examples.streaming_child import words
from tests.gateway.conftest import SECONDS, GatewayProcess, http_client

openai = pytest.importorskip("openai")

COUNT = "How many shapes are there?"


@pytest.fixture
async def client(streaming_gateway: GatewayProcess) -> AsyncIterator[Any]:
    async with calling(streaming_gateway) as client:
        yield client


def calling(gateway: GatewayProcess) -> Any:
    return openai.AsyncOpenAI(base_url=f"{gateway.address}/v1", api_key="any", timeout=SECONDS, max_retries=2)


def user_message(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def shown(picture: Picture, text: str) -> list[dict[str, Any]]:
    url = f"data:image/png;base64,{base64.b64encode(picture.encoded).decode()}"
    content = [{"type": "text", "text": text}, {"type": "image_url", "image_url": {"url": url, "detail": "low"}}]
    return [{"role": "system", "content": ""}, {"role": "user", "content": content}]


async def test_a_picture_is_looked_at(
    demo_gateway: GatewayProcess, demo_deployment: tuple[Deployment, Picture, str]
) -> None:
    picture = demo_deployment[1]
    shape = picture.shapes[0]
    async with asyncio.timeout(SECONDS), calling(demo_gateway) as client:
        [model] = [each async for each in client.models.list()]
        response = await client.chat.completions.create(
            model=model.id,
            messages=shown(picture, COUNT),
            temperature=0,
            max_completion_tokens=8,
            user="me",
            store=False,
        )
        assert response.choices[0].message.content == str(len(picture.shapes))
        assert response.choices[0].finish_reason == "stop"
        assert response.usage.total_tokens == response.usage.prompt_tokens + response.usage.completion_tokens > 700
        assert response.id.startswith("chatcmpl-") and response._request_id.startswith("req-")
        response = await client.chat.completions.create(
            model=model.id, messages=shown(picture, shape.name), extra_body={"skill": "detect"}
        )
        [box] = response.choices[0].message.objects
        assert set(box) == {"x_min", "y_min", "x_max", "y_max"}
        assert str(box["x_min"]) in response.choices[0].message.content
        again = await client.models.retrieve(model.id)
        assert again.id == model.id and again.created == model.created
        with pytest.raises(openai.NotFoundError, match="no worker serves"):
            await client.models.retrieve("no/such/model")


async def test_a_stream_ends_with_its_usage(client: Any) -> None:
    async with asyncio.timeout(SECONDS):
        stream = await client.chat.completions.create(
            model="moondream3-preview",
            messages=user_message("tell 12"),
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = [chunk async for chunk in stream]
    deltas = [chunk.choices[0].delta for chunk in chunks[:-1]]
    assert deltas[0].role == "assistant"
    assert "".join(delta.content or "" for delta in deltas) == "".join(words(12))
    assert [chunk.choices[0].finish_reason for chunk in chunks[:-1]] == [None] * (len(chunks) - 2) + ["stop"]
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens > 0
    assert len({chunk.id for chunk in chunks}) == 1


async def test_a_failure_in_the_middle_raises(streaming_gateway: GatewayProcess, client: Any, gate: Path) -> None:
    async with asyncio.timeout(SECONDS), http_client(streaming_gateway) as http:
        response = await client.chat.completions.with_raw_response.create(
            model="moondream/moondream3-preview", messages=user_message(f"tell 4 until {gate}"), stream=True
        )
        with pytest.raises(openai.APIError, match="the job was cancelled"):
            async for chunk in response.parse():
                if chunk.choices[0].delta.content:
                    await http.delete(f"/v1/jobs/{response.headers['x-stoop-job-id']}")


REFUSED = {
    "n": 2,
    "logprobs": True,
    "tools": [{"type": "function", "function": {"name": "f"}}],
    "tool_choice": "required",
    "logit_bias": {"5": 1},
    "modalities": ["text", "audio"],
    "web_search_options": {},
    "repetition_penalty": 1.1,
    "min_p": 0.05,
    "stop_token_ids": [7],
    "guided_json": {},
    "guided_choice": ["yes", "no"],
    "structured_outputs": {"regex": "a"},
    "chat_template_kwargs": {"enable_thinking": False},
}
NEUTRAL = {
    "n": 1,
    "stop": None,
    "logprobs": False,
    "tools": [],
    "tool_choice": "auto",
    "response_format": {"type": "text"},
    "presence_penalty": 0,
    "logit_bias": {},
    "modalities": ["text"],
    "repetition_penalty": 1.0,
    "min_p": 0,
    "stop_token_ids": [],
    "chat_template_kwargs": {},
    "guided_json": None,
    "metadata": {"a": "b"},
    "service_tier": "auto",
    "verbosity": "low",
    "parallel_tool_calls": True,
    "reasoning_effort": "none",
}


async def test_an_unsupported_option_that_changes_the_answer_is_refused_by_its_name(
    streaming_gateway: GatewayProcess,
) -> None:
    asked = {"model": "moondream3-preview", "messages": user_message("tell 2")}
    async with asyncio.timeout(SECONDS), http_client(streaming_gateway) as http:
        for name, value in REFUSED.items():
            response = await http.post("/v1/chat/completions", json={**asked, name: value})
            error = response.json()["error"]
            assert (response.status_code, error["code"], error["param"]) == (400, "unsupported_parameter", name)
        assert (await http.post("/v1/chat/completions", json={**asked, **NEUTRAL})).status_code == 200
        image = {"type": "image_url", "image_url": {"url": "aGVsbG8="}}
        for messages in (
            [],
            user_message("one") + user_message("two"),
            [*user_message("one"), {"role": "assistant", "content": "two"}],
            [{"role": "user", "content": [image, image]}],
            [{"role": "system", "content": [image]}, *user_message("one")],
        ):
            response = await http.post("/v1/chat/completions", json={**asked, "messages": messages})
            error = response.json()["error"]
            assert (response.status_code, error["code"], error["param"]) == (400, "unsupported_value", "messages")
        audio = [{"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}]
        response = await http.post("/v1/chat/completions", json={**asked, "messages": audio})
        assert (response.status_code, "messages" in response.json()["error"]["param"]) == (400, True)


OUT_OF_RANGE = {
    "max_tokens": 0,
    "max_completion_tokens": 0,
    "temperature": -1,
    "top_p": 1.5,
    "top_k": -1,
    "seed": -1,
    "stop": ["x"] * 17,
    "presence_penalty": 3,
    "min_pixels": 0,
    "regex": "",
    "deadline": -1,
    "spatial_refs": [[0.5, 0.5]],
}


async def test_a_parameter_out_of_range_is_refused_by_the_name_that_the_caller_gave_it(
    streaming_gateway: GatewayProcess, client: Any
) -> None:
    asked = {"model": "moondream3-preview", "messages": user_message("tell 2")}
    async with asyncio.timeout(SECONDS), http_client(streaming_gateway) as http:
        for name, value in OUT_OF_RANGE.items():
            response = await http.post("/v1/chat/completions", json={**asked, name: value})
            error = response.json()["error"]
            assert (response.status_code, error["code"], error["param"]) == (400, "invalid_argument", name)
            assert name in error["message"] and "settings" not in error["message"]
        with pytest.raises(openai.BadRequestError) as refusal:
            await client.chat.completions.create(model=asked["model"], messages=user_message("a" * 8193))
        assert refusal.value.param == "messages"
        for path, body, param in (
            ("/v1/query", {"question": "?", "settings": {"temperature": 11}}, "settings.temperature"),
            ("/v1/query", {"question": "?", "image_url": "s3://"}, "image_url"),
            ("/v1/gaze", {"eye": [2, 2], "image_url": "s3://bucket/face.jpg"}, "eye"),
            ("/v1/jobs", {"skill": "query", "question": "?", "max_attempts": 0}, "max_attempts"),
        ):
            error = (await http.post(path, json=body)).json()["error"]
            assert (error["code"], error["param"]) == ("invalid_argument", param)


async def test_a_model_without_a_worker_is_not_found(streaming_gateway: GatewayProcess, client: Any) -> None:
    known = len(streaming_gateway.lines)
    async with asyncio.timeout(SECONDS), http_client(streaming_gateway) as http:
        asks = (
            client.chat.completions.create(model="gpt-4o", messages=user_message("hello")),
            client.embeddings.create(model="text-embedding-3-small", input="hello"),
            client.embeddings.create(model="moondream3-preview", input=["hello"], encoding_format="float"),
            client.audio.transcriptions.create(model="whisper-1", file=("a.wav", b"RIFF"), language="en"),
            client.audio.transcriptions.create(
                model="whisper-1",
                file=("a.wav", b"RIFF"),
                response_format="verbose_json",
                timestamp_granularities=["word", "segment"],
            ),
        )
        for ask in asks:
            with pytest.raises(openai.NotFoundError) as refusal:
                await ask
            assert refusal.value.code == "model_not_found"
        for path in ("/v1/rerank", "/rerank", "/v2/rerank", "/reranking"):
            asked = {"model": "rerank-1", "query": "which?", "documents": ["one", {"text": "two"}], "top_n": 1}
            assert (await http.post(path, json=asked)).json()["error"]["code"] == "model_not_found"
        # the client warns that it will lose this call
        response = await http.post("/v1/audio/translations", data={"model": "m"}, files={"file": ("a.wav", b"R")})
        assert response.json()["error"]["code"] == "model_not_found"
        for path in ("/embedding", "/embeddings"):
            assert (await http.post(path, json={"content": "hello"})).json()["error"]["code"] == "model_not_found"
    while len(streaming_gateway.lines) < known + len(asks) + 7:
        await asyncio.sleep(0.02)
    assert len(streaming_gateway.lines) == known + len(asks) + 7, "no client repeated any of these"


async def test_wrong_inputs_of_routes_to_come(streaming_gateway: GatewayProcess) -> None:
    async with asyncio.timeout(SECONDS), http_client(streaming_gateway) as http:
        for wrong, param in (
            ({"input": [[87]]}, "input"),
            ({"input": [87]}, "input"),
            ({"input": ""}, "input"),
            ({"input": []}, "input"),
            ({"input": ["a"] * 2049}, "input"),
            ({"input": "a", "encoding_format": "hex"}, "encoding_format"),
        ):
            response = await http.post("/v1/embeddings", json={"model": "m", **wrong})
            assert (response.status_code, response.json()["error"]["param"]) == (400, param), response.text
        file = {"file": ("a.wav", b"RIFF")}
        for fields, param in (
            ({"response_format": "diarized_json"}, "response_format"),
            ({"temperature": "2"}, "temperature"),
            ({"temperature": "hot"}, "temperature"),
            ({"timestamp_granularities[]": "word"}, "timestamp_granularities[]"),
            ({"timestamp_granularities[]": "line", "response_format": "verbose_json"}, "timestamp_granularities[]"),
        ):
            response = await http.post("/v1/audio/transcriptions", data={"model": "m", **fields}, files=file)
            assert (response.status_code, response.json()["error"]["param"]) == (400, param), response.text
        response = await http.post("/v1/audio/transcriptions", data={"model": "m"})
        assert response.status_code == 415
        response = await http.post("/v1/audio/transcriptions", files={"file": ("a.wav", b"R")})
        assert (response.status_code, response.json()["error"]["param"]) == (400, "model")
        response = await http.post("/v1/audio/transcriptions", files={"model": (None, b"m")})
        assert (response.status_code, response.json()["error"]["param"]) == (400, "file")
