"""Stages of more and more callers, until errors, the p95 latency or the first piece break a threshold."""

import asyncio
import time
from dataclasses import asdict, dataclass
from statistics import quantiles
from typing import Any

from benchmarks.gateway.http_client import Answer, Connection
from benchmarks.gateway.stack import Stack

__all__ = ["Stage", "Thresholds", "measure_ramp"]

_QUESTION = "one\ntwo\nthree\n"


@dataclass(frozen=True)
class Thresholds:
    """A stage beyond one of these is the last one. Times are in milliseconds."""

    errors: float = 0.01
    p95_ms: float = 500.0
    first_p95_ms: float = 500.0


@dataclass(frozen=True)
class Stage:
    """One stage: its callers, and their latencies and errors. `cpu` is the gateway's share of one core."""

    callers: int
    requests_per_second: float
    errors: float
    p50_ms: float
    p95_ms: float
    first_p95_ms: float
    cpu: float
    megabytes: float

    def broken(self, thresholds: Thresholds) -> str | None:
        """Name the threshold that this stage breaks."""
        for name in ("errors", "p95_ms", "first_p95_ms"):
            if getattr(self, name) > getattr(thresholds, name):
                return name
        return None


async def measure_ramp(
    stack: Stack, thresholds: Thresholds, *, seconds: float, most: int, stream: bool
) -> dict[str, Any]:
    """Double the callers until a threshold breaks or there are `most`."""
    stages: list[Stage] = []
    callers, broken = 1, None
    while callers <= most and broken is None:
        stages.append(await _stage(stack, callers, seconds, stream))
        print(stages[-1], flush=True)
        broken = stages[-1].broken(thresholds)
        callers *= 2
    measured = {"stages": [asdict(stage) for stage in stages], "broken": broken, "thresholds": asdict(thresholds)}
    return {"kind": "gateway ramp", "stream": stream, "seconds": seconds, **measured}


async def _stage(stack: Stack, callers: int, seconds: float, stream: bool) -> Stage:
    body = {"question": _QUESTION, "stream": stream}
    cpu, began = stack.cpu_seconds(), time.perf_counter()
    until = began + seconds
    answers: list[Answer] = []

    async def call() -> None:
        connection = Connection(stack.host, stack.port)
        while time.perf_counter() < until:
            answers.append(await connection.ask("/v1/query", body))
        connection.close()

    await asyncio.gather(*(call() for _ in range(callers)))
    spent = time.perf_counter() - began
    good = [answer for answer in answers if answer.status == 200]
    whole, first = ([getattr(answer, name) for answer in good] for name in ("whole", "first"))
    return Stage(
        callers=callers,
        requests_per_second=round(len(good) / spent, 1),
        errors=round(1 - len(good) / len(answers), 4),
        p50_ms=_cut(whole, 9),
        p95_ms=_cut(whole, 18),
        first_p95_ms=_cut(first, 18),
        cpu=round((stack.cpu_seconds() - cpu) / spent, 2),
        megabytes=round(stack.megabytes(), 1),
    )


def _cut(seconds: list[float], number: int) -> float:
    return round(1000 * quantiles(seconds, n=20)[number], 2) if len(seconds) > 1 else 0.0
