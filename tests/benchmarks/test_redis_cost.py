import asyncio
from pathlib import Path

import pytest

from benchmarks.queue import partition, redis_cost
from benchmarks.queue.timed_engine import Service
from stoop.demo.embedded import embedded_redis


@pytest.fixture(autouse=True)
def own_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """These benchmarks empty the Redis they use."""
    monkeypatch.delenv("STOOP_REDIS_URL", raising=False)
    monkeypatch.delenv("STOOP_S3_ENDPOINT", raising=False)


def test_a_job_has_its_costs() -> None:
    waited, streamed, bulk, long, stored = redis_cost.measure(24, Service(seconds=0.05))
    for cost in (waited, streamed, bulk, long, stored):
        assert cost.cpu_us > 0
        assert {"take", "settle", "submit", "append"} <= cost.script_us.keys()
        assert cost.key_bytes["result"] > 300
    assert streamed.key_bytes["log"] > 4000
    assert long.key_bytes["result"] > 17_000 > 1_000 > stored.key_bytes["result"]
    assert "log" not in waited.key_bytes.keys() | bulk.key_bytes.keys()


def test_bursts_go_through_a_partition(tmp_path: Path) -> None:
    with embedded_redis(tmp_path) as redis:
        rate = asyncio.run(partition.measure(redis.url, 64, 16, streamed=False))
    assert rate.jobs_per_second > 0
    assert rate.jobs_per_core_second > 0
