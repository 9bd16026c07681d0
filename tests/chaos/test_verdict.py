"""The verdict finds every broken promise: jobs lost, answered twice, left over or run again."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from redis.asyncio import Redis

from stoop_schemas import names
from stoop_schemas.codec import pack
from stoop_schemas.event import CancelledEvent, RestartedEvent, StartedEvent
from stoop_schemas.result import Result
from stoop_schemas.state import State
from tests.chaos.ledger import Ledger, read
from tests.chaos.verdict import judge, quantile, table


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator["Redis[bytes]"]:
    async with Redis.from_url(redis_url, protocol=2) as redis:
        yield redis


@pytest.fixture
async def ledger(tmp_path: Path) -> AsyncIterator[Ledger]:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    yield ledger
    ledger.close()


async def answer(redis: "Redis[bytes]", job_id: str, *, runs: int = 1, ends: int = 1) -> None:
    events = [StartedEvent(id=job_id, seq=0, attempt=1)]
    events += [RestartedEvent(id=job_id, seq=run, attempt=run + 1) for run in range(1, runs)]
    events += [CancelledEvent(id=job_id, seq=runs + end, attempt=runs) for end in range(ends)]
    for event in events:
        await redis.xadd(names.log(job_id), {"e": pack(event)}, id=f"{event.seq + 1}-0")
    await redis.set(names.result(job_id), pack(Result(id=job_id, status=State.CANCELLED)))


async def test_a_promise_that_was_kept(redis: "Redis[bytes]", ledger: Ledger, tmp_path: Path) -> None:
    await ledger.accept(["a", "b"])
    for job_id in ("a", "b"):
        await answer(redis, job_id)
        await ledger.end(job_id, "cancelled", published=True)
    verdict = await judge("calm", tmp_path / "ledger.jsonl", redis, faults=0, recoveries=[0.5, 0.25])
    assert verdict.sound
    assert (verdict.jobs, verdict.reruns, verdict.endings) == (2, 0, {"cancelled": 2})
    assert (verdict.hit, verdict.recovery_last) == (2, 0.5)
    assert "calm" in table([verdict])


async def test_lost_repeated_and_open_jobs_are_counted(redis: "Redis[bytes]", ledger: Ledger, tmp_path: Path) -> None:
    await ledger.accept(["lost", "logged", "published", "found", "rerun", "unlogged"])
    await answer(redis, "logged", ends=2)
    await answer(redis, "published")
    await answer(redis, "found")
    await answer(redis, "rerun", runs=2)
    for job_id in ("logged", "published", "published", "found", "rerun"):
        await ledger.end(job_id, "cancelled", published=True)
    await ledger.end("found", "cancelled", published=False)
    await redis.set(names.result("unlogged"), b"{}")
    await redis.hset(names.job("unlogged"), "seq", 4)
    await redis.xadd(names.lane("bulk"), {"j": "{}"})
    verdict = await judge("storm", tmp_path / "ledger.jsonl", redis, faults=1, recoveries=[])
    assert not verdict.sound
    assert (verdict.lost, verdict.twice, verdict.left, verdict.reruns, verdict.unlogged) == (1, 2, 1, 2, 2)


async def test_a_ledger_is_read_back_as_it_was_written(ledger: Ledger, tmp_path: Path) -> None:
    await ledger.accept(["a", "b"])
    await ledger.end("a", "finished", published=True)
    account = read(tmp_path / "ledger.jsonl")
    assert (account.accepted, account.open) == (ledger.account.accepted, ["b"])


def test_quantiles() -> None:
    assert quantile([], 0.99) is None
    assert [quantile([float(n) for n in range(100)], share) for share in (0.5, 0.99, 1.0)] == [50.0, 99.0, 99.0]
