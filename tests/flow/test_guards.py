"""A whole worker refuses the jobs that its environment variables forbid."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from stoop import AsyncClient
from stoop.config import ProducerConfig
from stoop_schemas.failure import FailureCode
from stoop_schemas.result import Result
from stoop_schemas.state import State
from tests.flow.scripted import Floor, floor

KEYS = "web:sixteen bytes or more"


@pytest.fixture
async def ground(tmp_path: Path, redis_url: str) -> AsyncIterator[Floor]:
    async with floor(tmp_path, redis_url) as ground:
        yield ground


async def code(ground: Floor, client: AsyncClient, image: str, **fields: str) -> FailureCode:
    job = await client.prepare("caption", image, **fields)  # type: ignore[arg-type]
    [result] = await ground.results(await client.submit_many([job]))
    assert result.failure is not None
    return result.failure.code


async def test_a_worker_with_keys_runs_signed_jobs_only(ground: Floor) -> None:
    await ground.worker(signing_keys=KEYS)
    async with AsyncClient(ProducerConfig(redis_url=ground.redis_url, signing_keys=KEYS)) as signing:
        signed = await signing.prepare("query", question="anything")
        ids = [*await signing.submit_many([signed]), *await ground.submit("anything")]
    answered, refused = await ground.results(ids)
    assert answered.status is State.COMPLETED
    assert _code(refused) is FailureCode.MALFORMED
    assert len(await ground.left()) == 1, "the dead letters"


async def test_a_worker_reads_where_it_may(ground: Floor) -> None:
    await ground.worker(allowed_buckets="open,acme=scans/acme", s3_endpoint="http://127.0.0.1:9", s3_region="nowhere")
    assert await code(ground, ground.client, "s3://secret/a.png") is FailureCode.IMAGE_FORBIDDEN
    assert await code(ground, ground.client, "s3://scans/acme/a.png", tenant="rival") is FailureCode.IMAGE_FORBIDDEN
    assert await code(ground, ground.client, "https://example.org/a.png") is FailureCode.INVALID_ARGUMENT


async def test_a_worker_that_may_ask_web_servers_asks_those_named(ground: Floor) -> None:
    await ground.worker(allow_https="true", https_hosts="*.images.example")
    assert await code(ground, ground.client, "https://example.org/a.png") is FailureCode.IMAGE_FORBIDDEN


def _code(result: Result) -> FailureCode | None:
    return result.failure.code if result.failure else None
