"""Conversations with a chat model by OpenAI's own client: a tiny random Qwen3-VL, which sees."""

import asyncio
import base64
import io
import json
import signal
from collections.abc import Iterator
from typing import Annotated, Any

import pydantic
import pytest
from PIL import Image as Pillow

from stoop.demo.embedded import EmbeddedS3, embedded_redis
from stoop.demo.pictures import draw_pictures
from stoop.demo.worker_process import running_worker
from tests.examples.conftest import new_deployment
from tests.gateway.conftest import SECONDS, GatewayProcess, _start_gateway, events_of, http_client
from tests.support.tiny_decoder import write_qwen_vl

openai = pytest.importorskip("openai")

FLAGS = {"lanes": "interactive,bulk", "threads": "1", "max-context": "1024"}
TURNS = [
    {"role": "developer", "content": "Be brief."},
    {"role": "user", "content": "hello"},
    {"role": "assistant", "content": "Hello!"},
    {"role": "user", "content": "and then?"},
]
GREEDY = {"temperature": 0, "max_completion_tokens": 16}


@pytest.fixture(scope="module")
def chatting(s3: EmbeddedS3, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    folder = tmp_path_factory.mktemp("chat")
    (folder / "model").mkdir()
    model = write_qwen_vl(folder / "model")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("STOOP_REDIS_URL", raising=False)
        with embedded_redis(folder / "redis") as redis, running_worker(folder, model, redis, s3, FLAGS):
            gateway = _start_gateway(folder, new_deployment(redis, s3), "--open")
            yield gateway
            gateway.server.end(signal.SIGKILL)


async def test_a_conversation_is_answered_and_streamed_alike(chatting: GatewayProcess) -> None:
    client = openai.AsyncOpenAI(base_url=f"{chatting.address}/v1", api_key="any", timeout=SECONDS)
    async with asyncio.timeout(SECONDS), client:
        [model] = [each async for each in client.models.list()]
        asked: dict[str, Any] = {"model": model.id, "messages": TURNS, **GREEDY}
        whole = await client.chat.completions.create(**asked)
        text = whole.choices[0].message.content
        assert text and whole.choices[0].finish_reason == "length"
        assert whole.usage.completion_tokens == 16
        stream = await client.chat.completions.create(**asked, stream=True)
        assert "".join([chunk.choices[0].delta.content or "" async for chunk in stream]) == text
        stop = text[len(text) // 2 :][:2]
        cut = await client.chat.completions.create(**asked, stop=stop, extra_body={"top_k": 50})
        assert (cut.choices[0].message.content, cut.choices[0].finish_reason) == (text[: text.index(stop)], "stop")


async def test_low_detail_and_pixel_limits_make_an_image_cheaper_and_dearer(chatting: GatewayProcess) -> None:
    buffer = io.BytesIO()
    Pillow.new("RGB", (1024, 768), "red").save(buffer, "PNG")
    url = f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"
    async with asyncio.timeout(SECONDS), http_client(chatting) as http:
        [model] = (await http.get("/v1/models")).json()["data"]
        tokens = {}
        # the short form is the address alone
        messages = [{"role": "user", "content": [{"type": "image_url", "image_url": url}]}]
        body = {"model": model["id"], "messages": messages, "max_tokens": 1}
        short = (await http.post("/v1/chat/completions", json=body)).json()
        for detail, limits in (
            ("high", {}),
            ("low", {}),
            ("low", {"max_pixels": 65536}),
            ("auto", {"min_pixels": 819200}),
        ):
            shown = {"type": "image_url", "image_url": {"url": url, "detail": detail}}
            body = {"model": model["id"], "messages": [{"role": "user", "content": [shown]}], "max_tokens": 1, **limits}
            response = await http.post("/v1/chat/completions", json=body)
            tokens[detail, *limits] = response.json()["usage"]["prompt_tokens"]
    whole = tokens["high",]
    assert short["usage"]["prompt_tokens"] == whole
    # 1,024 pixels take a token: 768 of the whole image, at most 256, at most 64, and at least 800
    assert 768 - 256 <= whole - tokens["low",] <= 768 - 200
    assert 768 - 64 <= whole - tokens["low", "max_pixels"] <= 768 - 40
    assert 800 - 768 <= tokens["auto", "min_pixels"] - whole <= 900 - 768


async def test_images_anywhere_in_the_conversation_are_seen(chatting: GatewayProcess) -> None:
    async with asyncio.timeout(SECONDS), http_client(chatting) as http:
        [model] = (await http.get("/v1/models")).json()["data"]
        tokens = []
        for pictures in draw_pictures(1, seed=1), draw_pictures(2, seed=1):
            urls = [f"data:image/png;base64,{base64.b64encode(picture.encoded).decode()}" for picture in pictures]
            shown = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
            messages = [{"role": "user", "content": [{"type": "text", "text": "look"}, each]} for each in shown]
            body = {"model": model["id"], "messages": messages, "max_tokens": 4, "stream": True}
            body["stream_options"] = {"include_usage": True}
            async with http.stream("POST", "/v1/chat/completions", json=body) as response:
                data = [event["data"] async for event in events_of(response) if "data" in event]
            usage = json.loads(data[-2]) if isinstance(data[-2], str) else data[-2]
            tokens.append(usage["usage"]["prompt_tokens"])
        assert tokens[1] > tokens[0] + 100


async def test_an_option_that_a_chat_model_lacks_is_refused_by_its_name(chatting: GatewayProcess) -> None:
    async with asyncio.timeout(SECONDS), http_client(chatting) as http:
        [model] = (await http.get("/v1/models")).json()["data"]
        asked = {"model": model["id"], "messages": TURNS}
        for change, param in (
            ({"reasoning_effort": "high"}, "reasoning"),
            ({"messages": [{"role": "tool", "content": "4"}]}, "messages"),
            ({"messages": [{"role": "assistant", "tool_calls": [{"id": "1"}]}, *TURNS[1:]]}, "messages"),
        ):
            error = (await http.post("/v1/chat/completions", json={**asked, **change})).json()["error"]
            assert (error["type"], error["param"]) == ("invalid_request_error", param)


async def test_an_image_that_is_no_address_is_refused_in_words_about_the_image(chatting: GatewayProcess) -> None:
    shown = {"type": "image_url", "image_url": {"url": "/srv/photos/cat.png"}}
    async with asyncio.timeout(SECONDS), http_client(chatting) as http:
        [model] = (await http.get("/v1/models")).json()["data"]
        body = {"model": model["id"], "messages": [{"role": "user", "content": [shown]}]}
        error = (await http.post("/v1/chat/completions", json=body)).json()["error"]
    assert (error["code"], error["param"]) == ("image_undecodable", "messages")
    assert error["message"].startswith("the image is neither an address")


class Cat(pydantic.BaseModel):
    """The type of answer that a caller of OpenAI's client asks for."""

    model_config = pydantic.ConfigDict(extra="forbid")

    name: Annotated[str, pydantic.StringConstraints(max_length=6)]
    lives: Annotated[int, pydantic.Field(ge=1, le=9)]
    indoors: bool


async def test_an_answer_has_the_form_that_was_asked_for(chatting: GatewayProcess) -> None:
    client = openai.AsyncOpenAI(base_url=f"{chatting.address}/v1", api_key="any", timeout=SECONDS)
    async with asyncio.timeout(SECONDS), client:
        [model] = [each async for each in client.models.list()]
        asked: dict[str, Any] = {"model": model.id, "messages": TURNS, "temperature": 1, "max_tokens": 200}
        for seed in range(3):
            parsed = await client.chat.completions.parse(**asked, seed=seed, response_format=Cat)
            cat = parsed.choices[0].message.parsed
            assert cat is not None and len(cat.name) <= 6 and 1 <= cat.lives <= 9
        letters = {**asked, "temperature": 0, "extra_body": {"regex": "[a-z ]{60}"}}
        plain = await client.chat.completions.create(**letters)
        penalised = await client.chat.completions.create(**letters, presence_penalty=2, frequency_penalty=2)
        repeated, varied = (set(each.choices[0].message.content) for each in (plain, penalised))
        assert len(varied) > len(repeated)
        with pytest.raises(openai.BadRequestError, match="cannot be used"):
            await client.chat.completions.create(**asked, extra_body={"regex": "["})
        with pytest.raises(openai.BadRequestError, match="exclude each other"):
            await client.chat.completions.create(
                **asked, response_format={"type": "json_object"}, extra_body={"regex": "a"}
            )


async def test_a_native_job_has_the_form_too(chatting: GatewayProcess) -> None:
    job = {"skill": "chat", "messages": [{"role": "user", "content": "yes or no"}], "stream": False}
    async with asyncio.timeout(SECONDS), http_client(chatting) as http:
        created = await http.post("/v1/jobs", json={**job, "settings": {"regex": "yes|no"}})
        assert created.status_code < 300, created.text
        address = f"/v1/jobs/{created.json()['id']}"
        async with http.stream("GET", f"{address}/events") as response:
            assert [event async for event in events_of(response)]
        found = (await http.get(address)).json()
        assert found["result"]["output"]["message"]["content"] in ("yes", "no")
