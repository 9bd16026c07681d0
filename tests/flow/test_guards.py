"""A whole worker refuses the jobs that its environment variables forbid."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from stoop import AsyncClient
from stoop.config import ProducerConfig
from stoop_schemas.failure import FailureCode
from stoop_schemas.result import Result
from stoop_schemas.state import State
from tests.flow.scripted import RunningQueue, running_queue

KEYS = "web:sixteen bytes or more"


@pytest.fixture
async def queue(tmp_path: Path, redis_url: str) -> AsyncIterator[RunningQueue]:
    async with running_queue(tmp_path, redis_url) as queue:
        yield queue


async def code(queue: RunningQueue, client: AsyncClient, image: str, **fields: str) -> FailureCode:
    job = await client.prepare("caption", image, **fields)  # type: ignore[arg-type]
    [result] = await queue.results(await client.submit_many([job]))
    assert result.failure is not None
    return result.failure.code


async def test_a_worker_with_keys_runs_signed_jobs_only(queue: RunningQueue) -> None:
    await queue.worker(signing_keys=KEYS)
    async with AsyncClient(ProducerConfig(redis_url=queue.redis_url, signing_keys=KEYS)) as signing:
        signed = await signing.prepare("query", question="anything")
        ids = [*await signing.submit_many([signed]), *await queue.submit("anything")]
    answered, refused = await queue.results(ids)
    assert answered.status is State.COMPLETED
    assert _code(refused) is FailureCode.MALFORMED
    assert len(await queue.left()) == 1, "the dead letters"


async def test_a_worker_reads_where_it_may(queue: RunningQueue) -> None:
    await queue.worker(allowed_buckets="open,acme=scans/acme", s3_endpoint="http://127.0.0.1:9", s3_region="nowhere")
    assert await code(queue, queue.client, "s3://secret/a.png") is FailureCode.IMAGE_FORBIDDEN
    assert await code(queue, queue.client, "s3://scans/acme/a.png", tenant="rival") is FailureCode.IMAGE_FORBIDDEN
    assert await code(queue, queue.client, "https://example.org/a.png") is FailureCode.INVALID_ARGUMENT


async def test_a_worker_that_may_ask_web_servers_asks_those_named(queue: RunningQueue) -> None:
    await queue.worker(allow_https="true", https_hosts="*.images.example")
    assert await code(queue, queue.client, "https://example.org/a.png") is FailureCode.IMAGE_FORBIDDEN


def _code(result: Result) -> FailureCode | None:
    return result.failure.code if result.failure else None
