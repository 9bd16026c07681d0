"""The verdict on a case, from the ledger's file and the contents of the queue at the end."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from redis.asyncio import Redis

from stoop_schemas import names
from tests.chaos import ledger

__all__ = ["LAST_EVENTS", "Verdict", "as_json", "judge", "quantile", "streams", "table"]

LAST_EVENTS = {"finished", "failed", "cancelled", "expired"}
_RUNS = {"started", "restarted"}
_EVENTS_OF_ONE_RUN = 3
"""Queued, started, and the end: all that a job tells that does not stream."""

_PAGE = 200


@dataclass(frozen=True, slots=True)
class Verdict:
    """The figures of one case.

    `lost` jobs were accepted and have no result; `twice` had more than one last event, on the channel or in the log;
    `left` jobs are still in lanes, pending lists, delayed jobs and quarantines; `reruns` jobs ran more than once.
    `unlogged` jobs have no log, because they do not stream.
    `recovery_p99` is in seconds from a fault to the end of a job that it hit, `recovery_last` to the last such end.
    """

    case: str
    jobs: int
    faults: int
    seconds: float
    lost: int
    twice: int
    left: int
    reruns: int
    endings: dict[str, int]
    unlogged: int = 0
    hit: int = 0
    recovery_p50: float | None = None
    recovery_p99: float | None = None
    recovery_last: float | None = None
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def sound(self) -> bool:
        """True if the promise was kept: none lost, none answered twice, nothing left."""
        return (self.lost, self.twice, self.left) == (0, 0, 0)


async def judge(case: str, path: Path, redis: Redis, *, faults: int, recoveries: Sequence[float]) -> Verdict:
    """Read the ledger, and the queue's record of each job."""
    account = ledger.read(path)
    lost, logged_twice, reruns, unlogged = 0, 0, 0, 0
    job_ids = list(account.accepted)
    for start in range(0, len(job_ids), _PAGE):
        page = job_ids[start : start + _PAGE]
        pipeline = redis.pipeline(transaction=False)
        for job_id in page:
            pipeline.exists(names.result(job_id))
            pipeline.xrange(names.log(job_id), "-", "+")
            pipeline.hget(names.job(job_id), "seq")
        replies = await pipeline.execute()
        for kept, log, seq in zip(replies[::3], replies[1::3], replies[2::3], strict=True):
            types = Counter(msgspec.json.decode(fields[b"e"])["type"] for _, fields in log)
            lost += not kept
            unlogged += not log
            logged_twice += sum(types[last] for last in LAST_EVENTS) > 1
            reruns += sum(types[run] for run in _RUNS) > 1 if log else int(seq or 0) > _EVENTS_OF_ONE_RUN
    # an event may still come for a result that was found; two events may not
    published_twice = sum(sum(ending.published for ending in endings) > 1 for endings in account.ended.values())
    times = [*account.accepted.values(), *(ending.at for endings in account.ended.values() for ending in endings)]
    return Verdict(
        case=case,
        jobs=len(job_ids),
        faults=faults,
        seconds=round(max(times) - min(times), 2),
        lost=lost,
        twice=logged_twice + published_twice,
        left=await _left(redis),
        reruns=reruns,
        endings=dict(Counter(endings[0].how for endings in account.ended.values())),
        unlogged=unlogged,
        hit=len(recoveries),
        recovery_p50=quantile(recoveries, 0.5),
        recovery_p99=quantile(recoveries, 0.99),
        recovery_last=quantile(recoveries, 1.0),
    )


def quantile(values: Sequence[float], share: float) -> float | None:
    """Return the value that this share of the values does not exceed, to the millisecond."""
    return round(sorted(values)[min(len(values) - 1, int(share * len(values)))], 3) if values else None


def table(verdicts: Sequence[Verdict]) -> str:
    """Draw the figures, a case a line."""
    counted = ("case", "jobs", "faults", "unlogged", "lost", "twice", "left", "reruns", "hit")
    columns = (*counted, "p50 s", "p99 s", "last s", "all s")
    rows = []
    for one in verdicts:
        counts = (one.case, one.jobs, one.faults, one.unlogged, one.lost, one.twice, one.left, one.reruns, one.hit)
        times = (one.recovery_p50, one.recovery_p99, one.recovery_last, one.seconds)
        rows.append((*counts, *("–" if each is None else each for each in times)))
    lines = [columns, *rows]
    widths = [max(len(str(line[column])) for line in lines) for column in range(len(columns))]
    drawn = ["  ".join(str(cell).rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]
    notes = [f"{one.case}: {one.endings} {one.facts or ''}".rstrip() for one in verdicts]
    return "\n".join([*drawn, "", *notes])


async def _left(redis: Redis) -> int:
    left: int = await redis.zcard(names.delayed())
    for stream in await streams(redis):
        left += await redis.xlen(stream)
        left += sum(group["pending"] for group in await redis.xinfo_groups(stream))
    return left


async def streams(redis: Redis) -> list[bytes]:
    """Name every lane's stream that there is, the quarantines of all models among them."""
    return [stream async for stream in redis.scan_iter(match=f"{names.lane('')}*")]


def as_json(verdicts: Sequence[Verdict]) -> bytes:
    """Pack the figures."""
    return msgspec.json.format(msgspec.json.encode([asdict(one) for one in verdicts]), indent=2)
