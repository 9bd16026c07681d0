"""`stoop worker --gpus 0,1`: two real workers under one parent. One is killed, then the parent; one drain ends both."""

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from stoop.operator.redis_operator import RedisOperator
from stoop_schemas import names
from stoop_schemas.state import State
from tests.flow.scripted import running_queue
from tests.support.servers import free_ports
from tests.worker.test_endpoints import get

SECONDS = 60.0


@asynccontextmanager
async def parent(folder: Path, variables: Mapping[str, object]) -> AsyncIterator[asyncio.subprocess.Process]:
    path = os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])
    given = {f"STOOP_{name.upper()}": str(value) for name, value in variables.items()}
    with (folder / "parent.log").open("a") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.support.scripted_gpus"),
            env={**os.environ, "PYTHONPATH": path, "TMPDIR": str(folder), **given},
            stderr=log,
        )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()  # its workers drain
            await process.wait()


async def live_pids(operator: RedisOperator, count: int, *, without: int | None = None) -> list[int]:
    """Wait until this many workers live and the given one is gone; return their process ids."""
    async with asyncio.timeout(SECONDS):
        while True:
            pids = [int(worker.facts["pid"]) for worker in await operator.workers()]
            if len(pids) == count and without not in pids:
                return pids
            await asyncio.sleep(0.05)


def values(text: str, name: str) -> dict[str, float]:
    """The values of a metric, added up by the GPU."""
    found: dict[str, float] = {}
    for labels, value in re.findall(rf"^{name}\{{(.*)\}} (\S+)$", text, flags=re.MULTILINE):
        [gpu] = re.findall(r'\bgpu="(\d)"', labels)
        found[gpu] = found.get(gpu, 0) + float(value)
    return found


async def test_a_worker_is_killed_then_the_parent_of_both_and_one_drain_ends_all(
    tmp_path: Path, redis_url: str
) -> None:
    port, ready = free_ports(3), tmp_path / "ready"
    settings: dict[str, Any] = {
        "redis_url": redis_url,
        "gpus": "0,1",
        "lease_seconds": 10,  # so that a busy machine costs no worker its lease
        "permits": 4,
        "metrics_port": port,
        "ready_file": ready,
        "log_format": "json",
        "drain_seconds": SECONDS,
    }
    operator = RedisOperator(redis_url)

    async def ask(path: str) -> tuple[int, str]:
        return await asyncio.to_thread(get, f"http://127.0.0.1:{port}/{path}")

    def logged(event: str) -> int:
        return (tmp_path / "parent.log").read_text().count(event)

    async def counted(name: str) -> float:
        return sum(values((await ask("metrics"))[1], name).values())

    async with running_queue(tmp_path, redis_url) as queue, parent(tmp_path, settings) as process:
        killed, _ = await live_pids(operator, 2)
        results = await queue.results(await queue.submit(*map(str, range(12))))
        assert {result.status for result in results} == {State.COMPLETED}
        async with asyncio.timeout(SECONDS):
            # a worker counts a job after its result is stored, and writes its ready file once a second
            while await counted("stoop_jobs_settled_total") < 12 or not ready.exists():
                await asyncio.sleep(0.05)
        assert values((await ask("metrics"))[1], "stoop_gpu_worker_running") == {"0": 1, "1": 1}
        assert [(await ask(path))[0] for path in ("healthz", "readyz", "startupz")] == [200, 200, 200]

        held = await queue.submit(*["sleep 0.5"] * 8)
        os.kill(killed, signal.SIGKILL)
        assert {result.status for result in await queue.results(held)} == {State.COMPLETED}
        await live_pids(operator, 2, without=killed)
        assert await counted("stoop_gpu_worker_restarts_total") == 1

        # as many as both workers hold, so that neither ends before these do
        endless = await queue.submit(*["wait"] * 8)
        async with asyncio.timeout(SECONDS):
            while {await queue.redis.hget(names.job(job), "state") for job in endless} != {b"running"}:
                await asyncio.sleep(0.05)
        orphans = await live_pids(operator, 2)
        process.kill()
        await process.wait()
        waiting = "a worker of another parent has its GPU"
        waited = logged(waiting)
        without_port = {name: value for name, value in settings.items() if name != "metrics_port"}
        async with parent(tmp_path, without_port) as second:
            async with asyncio.timeout(SECONDS):
                while logged(waiting) < waited + 2:
                    await asyncio.sleep(0.05)
                await asyncio.gather(*map(queue.client.cancel, endless))
                while set(await live_pids(operator, 2)) & set(orphans):
                    await asyncio.sleep(0.05)
            assert {result.status for result in await queue.results(await queue.submit("a"))} == {State.COMPLETED}
            assert logged("a GPU is left without a worker") == 0

            second.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(second.wait(), SECONDS) == 0
        assert await operator.workers() == []
        assert not ready.exists()
    await operator.close()
