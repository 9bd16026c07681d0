import itertools
from pathlib import Path

import pytest

from benchmarks.queue.kill_one import kill_one, live_workers
from benchmarks.queue.processes import shares
from stoop import AsyncClient
from stoop.config import ProducerConfig
from stoop.operator.redis_operator import RedisOperator
from stoop_schemas.job import Job
from tests.flow.test_gpu_workers import live_pids, parent


@pytest.mark.parametrize(
    ("cores", "workers", "own", "parts"),
    [
        (32, 2, 8, [(8, 20), (20, 32)]),
        (32, 1, 8, [(8, 32)]),
        (2, 2, 2, [(0, 2), (0, 2)]),
    ],
)
def test_the_load_and_the_workers_have_cores_of_their_own_if_there_are_enough(
    cores: int, workers: int, own: int, parts: list[tuple[int, int]]
) -> None:
    assert shares(range(cores), workers) == (list(range(own)), [list(range(*part)) for part in parts])


async def test_the_jobs_of_a_killed_worker_end_once_on_another(tmp_path: Path, redis_url: str) -> None:
    config = ProducerConfig(redis_url=redis_url, bucket="none", lane="bench", timeout_seconds=60)
    settings = {"redis_url": redis_url, "gpus": "0,1", "lanes": "bench", "lease_seconds": 3, "permits": 4}
    numbers = itertools.count()

    async def next_job(client: AsyncClient) -> Job:
        return await client.prepare("query", question=f"sleep {0.01 * (next(numbers) % 5)}")

    async with parent(tmp_path, settings):
        operator = RedisOperator(redis_url)
        pids = await live_pids(operator, 2)
        await operator.close()
        aftermath = await kill_one(config, next_job, load=16)
        assert aftermath.killed in pids
        assert aftermath.sound, aftermath
        assert sum(aftermath.held_ended_on.values()) == aftermath.held
        assert sum(aftermath.ended_on.values()) == aftermath.jobs >= 32
        assert aftermath.killed not in (await live_workers(redis_url)).values()
