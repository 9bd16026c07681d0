"""A snapshot of Redis, taken while workers run jobs, is a queue: restored elsewhere, each of its jobs ends."""

import asyncio
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis
from redis.exceptions import RedisError

from stoop.demo.child_server import ChildServer
from stoop.demo.embedded import EmbeddedRedis, embedded_redis
from stoop_schemas import names
from stoop_schemas.state import TERMINAL
from tests.flow.scripted import SECONDS, RunningQueue, running_queue
from tests.support.servers import free_port


@pytest.fixture
def original(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedRedis]:
    monkeypatch.delenv("STOOP_REDIS_URL", raising=False)
    with embedded_redis(tmp_path / "original") as redis:
        yield redis


async def snapshot(queue: RunningQueue) -> None:
    """Let Redis write its snapshot beside its work, as `BGSAVE` of an operator does."""
    before = await queue.redis.lastsave()
    await queue.redis.bgsave()
    async with asyncio.timeout(SECONDS):
        while (await queue.redis.info("persistence"))["rdb_bgsave_in_progress"]:
            await asyncio.sleep(0.02)
    assert await queue.redis.lastsave() >= before


def restored(original: EmbeddedRedis, folder: Path) -> ChildServer:
    """A Redis on a copy of the snapshot. With an append-only file from the start it would read that, and be empty."""
    assert original.child is not None
    folder.mkdir()
    shutil.copy(folder.parent / "original" / "dump.rdb", folder)
    port = free_port()
    options = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--appendonly", "no", "--save", ""]

    def answers(pid: int) -> bool:
        try:
            with Redis(port=port) as redis:
                return not redis.info("persistence")["loading"]
        except (RedisError, OSError):
            return False

    program = original.child.command[0]
    server = ChildServer("redis-server", [program, *options], folder / "redis.log", os.environ, answers, SECONDS)
    server.start()
    return server


async def states(queue: RunningQueue) -> dict[str, str]:
    """The state of each job that Redis knows."""
    found = {}
    async for key in queue.redis.scan_iter(match=names.job("*"), count=1000):
        found[key.decode().rpartition(":")[2]] = (await queue.redis.hget(key, "state") or b"").decode()
    return found


async def test_every_job_of_a_snapshot_ends(original: EmbeddedRedis, tmp_path: Path) -> None:
    """Some jobs have ended, some run, some wait; the workers of the snapshot are gone."""
    async with running_queue(tmp_path, original.url) as queue:
        worker = await queue.worker(permits=8)
        ended = await queue.submit(*map(str, range(20)))
        await queue.results(ended)
        # these end only when cancelled, so the snapshot has running and waiting jobs
        endless = await queue.submit(*["wait"] * 12, stream=True)
        await queue.running(endless[0])
        waiting = await queue.submit(*["later"] * 20)
        await snapshot(queue)
        await worker.kill()

    elsewhere = tmp_path / "elsewhere"
    server = restored(original, elsewhere)
    try:
        async with running_queue(elsewhere, f"redis://127.0.0.1:{server.command[2]}/0") as queue:
            known = await states(queue)
            assert set(known) == {*ended, *endless, *waiting}
            assert {known[job] for job in ended} == {"completed"}
            assert {known[job] for job in [*endless, *waiting]} == {"queued", "running"}
            await queue.redis.config_set("appendonly", "yes")
            await asyncio.gather(*map(queue.client.cancel, endless))
            await queue.worker(permits=8)
            results = await queue.results([*ended, *endless, *waiting])
            assert [result.status for result in results] == ["completed"] * 20 + ["cancelled"] * 12 + ["completed"] * 20
            assert set(await states(queue)) == set(known)
            assert all(state in TERMINAL for state in (await states(queue)).values())
            assert await queue.left() == {}
    finally:
        server.end(signal.SIGKILL)
