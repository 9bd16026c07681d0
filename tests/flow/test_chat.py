"""Chats with a tiny random Llama, from the client through Redis and the engine, and back."""

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from celery import Celery
from typer.testing import CliRunner

from stoop import AsyncClient, Client, JobFailed
from stoop.celery import chat, configure
from stoop.cli.app import app
from stoop.config import ProducerConfig
from stoop.demo.embedded import EmbeddedS3, embedded_redis
from stoop.demo.worker_process import running_worker
from stoop_schemas.event import DeltaEvent, FinishedEvent
from tests.celery.works import close
from tests.support.tiny_decoder import LLAMA, write_decoder

FLAGS = {"lanes": "interactive,bulk", "threads": "1", "max-context": "1024"}
GREEDY = {"temperature": 0.0, "max_tokens": 24}
HELLO = [{"role": "user", "content": "hello"}]


@pytest.fixture(scope="module")
def config(s3: EmbeddedS3, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProducerConfig]:
    folder = tmp_path_factory.mktemp("chat")
    model = write_decoder(folder / "model", LLAMA)
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("STOOP_REDIS_URL", raising=False)
        with (
            embedded_redis(folder / "redis") as redis,
            running_worker(folder, model, redis, s3, FLAGS),
        ):
            yield ProducerConfig(redis_url=redis.url, timeout_seconds=60)


@pytest.fixture
async def chats(config: ProducerConfig) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(config) as client:
        yield client


async def test_the_pieces_of_a_streamed_chat_are_the_whole_message(chats: AsyncClient) -> None:
    drawn = {"temperature": 6.0, "top_p": 1.0, "max_tokens": 100, "seed": 5}
    whole = (await chats.chat(HELLO, settings=drawn))["message"]
    assert whole["role"] == "assistant"
    pieces = [piece async for piece in (await chats.chat(HELLO, stream=True, settings=drawn))["message"]]
    assert "".join(pieces) == whole["content"]
    assert len(pieces) > 1


async def test_events_and_result_of_a_chat(chats: AsyncClient) -> None:
    job = await chats.prepare("chat", messages=HELLO, settings=GREEDY, stream=True)
    await chats.submit(job)
    events = [event async for event in chats.stream(job.id)]
    assert [event.seq for event in events] == list(range(len(events)))
    finished = events[-1]
    assert isinstance(finished, FinishedEvent)
    result = finished.result
    assert result.output is not None and result.output.message is not None
    assert "".join(event.text for event in events if isinstance(event, DeltaEvent)) == result.output.message.content
    assert (result.finish_reason, result.metrics.output_tokens) == ("length", 24)


async def test_a_chat_ends_before_a_stop_string(chats: AsyncClient) -> None:
    whole = (await chats.chat(HELLO, settings=GREEDY))["message"]["content"]
    stop = whole[len(whole) // 2 :][:3]
    job = await chats.prepare("chat", messages=HELLO, settings={**GREEDY, "stop": [stop]})
    result = await chats.result(await chats.submit(job))
    assert result.output is not None and result.output.text == whole[: whole.index(stop)]
    assert result.finish_reason == "stop"


async def test_a_second_turn_prefills_only_its_new_tokens(chats: AsyncClient) -> None:
    first = await chats.prepare("chat", messages=HELLO, settings=GREEDY)
    answer = await chats.result(await chats.submit(first))
    assert answer.output is not None
    turns = [*HELLO, {"role": "assistant", "content": answer.output.text}, {"role": "user", "content": "and then?"}]
    second = await chats.prepare("chat", messages=turns, settings=GREEDY)
    again = await chats.result(await chats.submit(second))
    assert answer.metrics.input_tokens - 16 < again.metrics.cached_tokens < again.metrics.input_tokens


async def test_a_chat_that_its_template_refuses_fails(chats: AsyncClient) -> None:
    picture = {"type": "image_url", "image_url": {"url": "https://example.com/cat.png"}}
    with pytest.raises(JobFailed):
        await chats.chat([{"role": "user", "content": [picture]}], settings=GREEDY)


def test_the_task_of_celery_is_answered_like_the_client(config: ProducerConfig) -> None:
    url = config.redis_url.get_secret_value()
    own = configure(Celery("chats", broker=url, backend=url, set_as_current=False))
    try:
        answered = own.tasks[chat.name].apply_async((HELLO,), {"settings": GREEDY}).get(timeout=60)
    finally:
        close(own)
    with Client(config) as client:
        assert answered == client.chat(HELLO, settings=GREEDY)


def test_openais_batch_lines_run_as_they_are(config: ProducerConfig, tmp_path: Path) -> None:
    asked = {"model": "gpt-4o", "messages": HELLO, "temperature": 0, "max_tokens": 24}
    lines = [
        {"custom_id": f"request-{number}", "method": "POST", "url": "/v1/chat/completions", "body": {**asked, **more}}
        for number, more in enumerate(({}, {"n": 2}, {"response_format": {"type": "json_object"}}))
    ]
    batch = tmp_path / "batch.jsonl"
    batch.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    settings = {"STOOP_REDIS_URL": config.redis_url.get_secret_value()}
    ran = CliRunner(env=settings).invoke(app, ["bulk", str(batch), "--out", str(tmp_path / "out")])
    assert ran.exit_code == 0, ran.output
    rows = [json.loads(line) for path in (tmp_path / "out").glob("results-*") for line in path.read_text().splitlines()]
    found = {row["id"]: row["output"]["message"]["content"] for row in rows}
    assert set(found) == {"request-0", "request-2"}
    with Client(config) as client:
        assert found["request-0"] == client.chat(HELLO, settings=GREEDY)["message"]["content"]
    assert found["request-2"].startswith("{")


async def test_a_skill_that_the_model_lacks_is_refused_by_name(chats: AsyncClient) -> None:
    with pytest.raises(JobFailed, match="this model cannot query: it can chat"):
        await chats.query(question="Is it?", settings=GREEDY)
