"""The case with two models on one queue: whatever dies, no job ever reaches a worker of the other model."""

import asyncio
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Final

import msgspec

from stoop_schemas import names
from stoop_schemas.job import Job
from tests.chaos.deployment import Deployment, Load, deployment, question, questions
from tests.chaos.verdict import Verdict, streams

__all__ = ["two_models"]

_SECOND: Final = "second"
_AMONG: Final = 20
"""Jobs of each model in which one kills every engine."""


async def two_models(folder: Path, load: Load) -> Verdict:
    """Workers of two models on one queue: workers and engines are killed, and then a job of each kills every engine."""
    async with deployment(folder, load, max_engine_faults="100") as here:
        here.settings |= {"model_name": _SECOND, "serve_default": "false"}
        await here.start_workers(here.server.url)
        models = {worker.name: model for worker, model in zip(here.workers, _each(load.workers), strict=True)}
        pids = {worker.pid: models[worker.name] for worker in here.workers}
        recovering: list[asyncio.Task[None]] = []

        async def kill() -> None:
            worker = here.chance.choice([worker for worker in here.workers if worker.children])
            recovering.append(asyncio.create_task(here.recovers(await here.pending_of(worker.pid))))
            if here.chance.random() < 0.5:
                worker.kill_engine()
            else:
                await worker.kill()
                await worker.start()
                pids[worker.pid] = models[worker.name]
            await _assert_claimed_apart(here, pids)

        jobs = _of_two_models(load.jobs - 2 * _AMONG)
        await asyncio.gather(here.submit(jobs), here.at_each_share(kill))
        await asyncio.gather(*recovering)
        await here.ledger.until_these_ended([job.id for job in jobs])
        poison = [question("poison", "die"), question("named-poison", "die", _SECOND)]
        await here.submit([*poison, *_of_two_models(2 * _AMONG - 2, stem="late-")])
        verdict = await here.verdict("two models")
        assert verdict.endings == {"finished": load.jobs - 2, "failed": 2}, verdict.endings
        await _assert_claimed_apart(here, pids)
        await _assert_answered_apart(here, pids)
        letters = await here.redis.xrange(names.dead())
        assert {fields[b"id"] for _, fields in letters} == {b"poison", b"named-poison"}, "the others are innocent"
        return replace(verdict, facts={"processes": len(pids)})


def _each(count: int) -> list[str | None]:
    return [None] * count + [_SECOND] * count


def _of_two_models(count: int, *, stem: str = "") -> list[Job]:
    named = questions(count // 2, stem=f"{stem}named", model=_SECOND)
    unnamed = questions(count - count // 2, stem=f"{stem}unnamed")
    return [job for pair in zip_longest(unnamed, named) for job in pair if job is not None]


async def _assert_claimed_apart(here: Deployment, pids: dict[int, str | None]) -> None:
    """Check that only workers of a lane's model claimed from it."""
    for stream in await streams(here.redis):
        of_second = stream.decode().startswith(names.lane(f"{_SECOND}:"))
        for consumer in await here.redis.xinfo_consumers(stream, names.GROUP):
            if consumer["name"] != b"-":
                assert (_model_of(consumer["name"], pids) == _SECOND) == of_second, (stream, consumer)


async def _assert_answered_apart(here: Deployment, pids: dict[int, str | None]) -> None:
    """Check that only workers of a job's model answered it."""
    for job_id in here.ledger.account.ended:
        result = await here.redis.get(names.result(job_id))
        if result is not None:
            worker = msgspec.json.decode(result)["worker"].encode()
            assert (_model_of(worker, pids) == _SECOND) == ("named-" in job_id and "unnamed-" not in job_id), job_id


def _model_of(worker: bytes, pids: dict[int, str | None]) -> str | None:
    return pids[int(worker.decode().rsplit("-", 2)[1])]
