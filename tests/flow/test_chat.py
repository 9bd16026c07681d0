"""Chats with a tiny random Llama, from the client through Redis and the engine, and back."""

from collections.abc import AsyncIterator, Iterator

import pytest

from stoop import AsyncClient, JobFailed
from stoop.config import ProducerConfig
from stoop.demo.embedded import EmbeddedS3, embedded_redis
from stoop.demo.worker_process import running_worker
from stoop_schemas.event import DeltaEvent, FinishedEvent
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


async def test_a_skill_that_the_model_lacks_is_refused_by_name(chats: AsyncClient) -> None:
    with pytest.raises(JobFailed, match="this model cannot query: it can chat"):
        await chats.query(question="Is it?", settings=GREEDY)
