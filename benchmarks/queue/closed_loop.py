"""Keeps a number of jobs in flight through the queue, and records each of them."""

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from benchmarks.engine.engine_run import Record
from benchmarks.engine.workloads import Ask
from stoop import AsyncClient
from stoop.config import ProducerConfig
from stoop_schemas.job import Job
from stoop_schemas.result import Result
from stoop_worker.engine.request import Caption, Chat, Detect, Query

__all__ = ["ClosedLoop", "Measured", "prepare"]


@dataclass(frozen=True, slots=True)
class Measured:
    """The jobs that ended in the measured time, which began at `began`; `cpu` has the seconds of CPU used in it."""

    records: list[Record]
    began: float
    cpu: tuple[float, ...]


@dataclass(slots=True)
class ClosedLoop:
    """Asks the questions in turn; `image_of` names a question's image, `cpu` reads the CPU time of some processes.

    `answers` has each question's answer, by its place among `asks`.
    """

    config: ProducerConfig
    asks: Iterator[Ask]
    image_of: Callable[[Ask], str | None]
    cpu: Callable[[], tuple[float, ...]]
    answers: dict[int, Any] = field(default_factory=dict)
    _asked: int = field(default=0, init=False)
    _ended: list[Record] = field(default_factory=list, init=False)

    async def go(self, load: int, requests: int, seconds: float) -> Measured:
        """Warm up with `load` jobs, then measure `requests` jobs, all within `seconds`."""
        most, until = load + requests, time.perf_counter() + seconds
        async with AsyncClient(self.config) as client, asyncio.TaskGroup() as group:
            for _ in range(load):
                group.create_task(self._keep_asking(client, most, until))
            await self._wait_for(load, until)
            before, began = self.cpu(), self._ended[-1].ended
            await self._wait_for(most, until)
            spent = tuple(after - was for after, was in zip(self.cpu(), before, strict=True))
            return Measured(self._ended[load:most], began, spent)

    async def _keep_asking(self, client: AsyncClient, most: int, until: float) -> None:
        """Keep one job in flight."""
        while len(self._ended) < most and time.perf_counter() < until:
            number, ask = self._asked, next(self.asks)
            self._asked += 1
            job = await prepare(client, ask, self.image_of(ask))
            record = Record(arrived=time.perf_counter())
            result = await client.result(await client.submit(job))
            _note(record, result)
            if record.tokens != _tokens(ask):
                raise SystemExit(f"{ask} was answered with {record.tokens} tokens")
            self.answers[number] = result.output
            self._ended.append(record)

    async def _wait_for(self, ended: int, until: float) -> None:
        while len(self._ended) < ended and time.perf_counter() < until:
            await asyncio.sleep(0.002)
        if not self._ended:
            raise SystemExit("no job has ended: raise --seconds")


async def prepare(client: AsyncClient, ask: Ask, image: str | None) -> Job:
    """Return a question about this image, or a chat of text alone, as a job."""
    task = ask.task
    if isinstance(task, Chat):
        messages = [{"role": each.role, "content": "".join(map(str, each.content))} for each in task.messages]
        fields: dict[str, Any] = {"messages": messages}
    elif isinstance(task, Caption):
        fields = {"length": task.length}
    else:
        fields = {"question": task.question} if isinstance(task, Query) else {"object": task.object}
    settings = {"temperature": 0.0, "max_tokens": ask.tokens, "max_objects": ask.objects}
    return await client.prepare(type(task).__name__.lower(), image, settings=settings, **fields)


def _note(record: Record, result: Result) -> None:
    cost = result.metrics
    record.ended, record.ttft = time.perf_counter(), cost.ttft_ms / 1e3
    record.tokens, record.cached_tokens = cost.output_tokens, cost.cached_tokens


def _tokens(ask: Ask) -> int:
    """Return the number of tokens, coordinates and sizes of the whole answer."""
    if isinstance(ask.task, Query | Caption | Chat):
        return ask.tokens
    return ask.objects * (3 if isinstance(ask.task, Detect) else 2)
