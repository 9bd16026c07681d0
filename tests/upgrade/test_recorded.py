"""Today's code reads the keys of earlier releases, and today's messages are valid for them."""

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from redis.asyncio import Redis

from stoop import JobCancelled, JobExpired
from stoop.demo.embedded import EmbeddedS3
from stoop.demo.pictures import draw_pictures
from stoop.operator.redis_operator import RedisOperator
from stoop_schemas import names
from stoop_schemas.event import DeltaEvent, FinishedEvent
from stoop_schemas.state import State
from tests.flow.scripted import RunningQueue, running_queue
from tests.upgrade.keys import load
from tests.upgrade.record_program import IMAGE, WAITING

RECORDED = sorted(Path(__file__).parent.joinpath("recorded").glob("*.json"))


@pytest.fixture(params=RECORDED, ids=lambda path: path.stem)
def recorded(request: pytest.FixtureRequest) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(request.param.read_text(encoding="utf-8"))
    return found


@pytest.fixture
def store(s3: EmbeddedS3, monkeypatch: pytest.MonkeyPatch) -> EmbeddedS3:
    """The object store with the image that every recorded job names."""
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    [picture] = draw_pictures(1, seed=3)
    bucket, _, key = IMAGE.removeprefix("s3://").partition("/")
    assert s3.bucket == bucket
    s3.client().put_object(Bucket=bucket, Key=key, Body=picture.encoded)
    return s3


async def logged(redis: "Redis[bytes]", job_id: str) -> list[dict[str, Any]]:
    return [json.loads(fields[b"e"]) for _, fields in await redis.xrange(names.log(job_id))]


async def test_todays_worker_runs_the_jobs_of_an_earlier_producer(
    recorded: dict[str, Any], store: EmbeddedS3, tmp_path: Path, redis_url: str
) -> None:
    ids = recorded["waiting"]["ids"]
    assert ids.keys() == WAITING.keys()
    async with running_queue(tmp_path, redis_url) as queue:
        await load(queue.redis, recorded["waiting"]["keys"])
        again = await _submit(queue, "all fields")
        assert again == ids["all fields"], "an idempotency key of the earlier release still holds"
        await queue.worker(s3_endpoint=store.endpoint, s3_path_style=True)
        results = dict(zip(ids, await queue.results(list(ids.values())), strict=True))
        assert {name: result.status for name, result in results.items()} == dict.fromkeys(ids, State.COMPLETED)
        assert {name: result.skill for name, result in results.items()} == {
            name: fields["skill"] for name, fields in WAITING.items()
        }
        whole = results["all fields"]
        assert whole.output is not None
        assert (whole.output.answer, whole.custom_id, whole.metadata) == (
            WAITING["all fields"]["question"],
            WAITING["all fields"]["custom_id"],
            WAITING["all fields"]["metadata"],
        )


async def test_todays_client_reads_the_answers_of_an_earlier_worker(
    recorded: dict[str, Any], tmp_path: Path, redis_url: str
) -> None:
    ids = recorded["ended"]["ids"]
    async with running_queue(tmp_path, redis_url) as queue:
        await load(queue.redis, recorded["ended"]["keys"])
        quiet = await queue.client.result(ids["quiet"])
        assert quiet.output is not None
        assert (quiet.output.answer, quiet.custom_id, quiet.metadata) == ("a quiet one", "row 2", {"number": 2})
        events = [event async for event in queue.client.stream(ids["streamed"])]
        assert [event.seq for event in events] == list(range(len(events)))
        assert "".join(event.text for event in events if isinstance(event, DeltaEvent)) == "a streamed one"
        assert isinstance(events[-1], FinishedEvent)
        with pytest.raises(JobCancelled):
            await queue.client.result(ids["cancelled"])
        with pytest.raises(JobExpired):
            await queue.client.result(ids["expired"])


async def test_todays_operator_reads_the_records_of_an_earlier_worker(recorded: dict[str, Any], redis_url: str) -> None:
    async with Redis.from_url(redis_url, protocol=2) as redis:
        await load(redis, recorded["ended"]["keys"])
        [name] = await redis.hkeys(names.workers())
        await redis.set(names.live(name.decode()), "1")
    operator = RedisOperator(redis_url)
    try:
        [worker] = await operator.workers()
        status = await operator.status(names.DEFAULT_LANES)
        [letter] = await operator.letters(10)
    finally:
        await operator.close()
    assert worker.facts["version"] == recorded["version"]
    assert (status.held, status.dead, status.totals["completed"]) == (0, 1, 2)
    assert (letter.code, letter.lane, letter.worker) == ("malformed", "interactive", worker.worker)


async def test_todays_messages_are_valid_for_an_earlier_release(
    recorded: dict[str, Any], store: EmbeddedS3, tmp_path: Path, redis_url: str
) -> None:
    valid = {name: Draft202012Validator(schema).validate for name, schema in recorded["schemas"].items()}
    async with running_queue(tmp_path, redis_url) as queue:
        ids = [await _submit(queue, name) for name in WAITING]
        for lane in await queue.redis.keys(f"{names.lane('')}*"):
            for _, fields in await queue.redis.xrange(lane):
                valid["job"](json.loads(fields[b"j"]))
        await queue.worker(s3_endpoint=store.endpoint, s3_path_style=True)
        await queue.results(ids)
        kinds = set()
        for job_id in ids:
            valid["result"](json.loads(await queue.redis.get(names.result(job_id)) or b""))
            for event in await logged(queue.redis, job_id):
                valid["event"](event)
                kinds.add(event["type"])
        assert kinds >= {"queued", "started", "delta", "finished"}


async def _submit(queue: RunningQueue, name: str) -> str:
    """Submit one of the recorded jobs by today's client."""
    fields = {"settings": {"max_tokens": 1}, **WAITING[name]}
    job = await queue.client.prepare(fields.pop("skill"), fields.pop("image", None), **fields)
    return await queue.client.submit(job)
