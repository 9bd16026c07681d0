"""A whole worker and its probes while Redis goes away and comes back."""

import asyncio
import json
from pathlib import Path

from stoop.demo.embedded import EmbeddedRedis
from stoop_schemas.state import State
from tests.flow.scripted import running_queue
from tests.support.servers import free_port
from tests.worker.test_endpoints import get


async def test_a_worker_without_redis_is_alive_but_not_ready_and_logs_it_once(
    tmp_path: Path, redis_url: str, redis_server: EmbeddedRedis
) -> None:
    port = free_port()
    async with running_queue(tmp_path, redis_url) as queue:
        worker = await queue.worker(lease_seconds=1, metrics_port=port, log_format="json")

        async def probe(name: str) -> int:
            return (await asyncio.to_thread(get, f"http://127.0.0.1:{port}/{name}"))[0]

        assert [await probe(name) for name in ("healthz", "readyz", "startupz", "nothing")] == [200, 200, 200, 404]
        redis_server.kill()
        try:
            await worker.until_draining()
            assert [await probe(name) for name in ("healthz", "readyz", "startupz")] == [200, 503, 200]
        finally:
            redis_server.restart()
        await worker.until_ready()
        assert await probe("readyz") == 200
        [result] = await queue.results(await queue.submit("still here"))
        assert result.status is State.COMPLETED
        logged = [json.loads(line) for line in worker.log.read_text().splitlines() if line.startswith("{")]
        warnings = [line["event"] for line in logged if line["level"] == "warning" and "Redis" in line["event"]]
        assert warnings == ["Redis is not available: this worker waits for it", "Redis is available again"]
