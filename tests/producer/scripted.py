"""A queue in memory that a test scripts: it can publish an event without logging it, and log one without publishing."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager

from stoop_schemas.codec import pack, unpack_event
from stoop_schemas.event import (
    DeltaEvent,
    Event,
    FailedEvent,
    FinishedEvent,
    ObjectEvent,
    QueuedEvent,
    ReasoningEvent,
    StartedEvent,
)
from stoop_schemas.failure import Failure
from stoop_schemas.job import Job
from stoop_schemas.result import Metrics, Result
from stoop_schemas.skill import Box, Output, Point, Reasoning, Skill
from stoop_schemas.state import State
from stoop_schemas.worker import WorkerRecord

Script = Callable[[Job], Iterable[Event]]


class ScriptedTransport:
    """A `Transport`; a `script`, if given, makes the events of each job, which are published as soon as it is
    submitted.
    """

    def __init__(self, script: Script | None = None) -> None:
        self.script = script
        self.submitted: list[Job] = []
        self.logs: dict[str, list[bytes]] = defaultdict(list)
        self.results: dict[str, bytes] = {}
        self.seqs: dict[str, int] = {}
        self.subscribed = asyncio.Event()
        self.cancelled: list[str] = []
        self.forgotten: list[str] = []
        self.states: dict[str, str] = {}
        self.closed = 0
        self.records = [WorkerRecord(lanes=("interactive", "bulk"))]
        self.lapsed: list[WorkerRecord] = []
        self.looks = 0
        self._channels: dict[str, list[asyncio.Queue[bytes | None]]] = defaultdict(list)

    async def submit(self, jobs: Sequence[Job]) -> list[str]:
        self.submitted += jobs
        for job in jobs if self.script else ():
            self.publish(*self.script(job))
        return [job.id for job in jobs]

    def publish(self, *events: Event) -> None:
        """Log and publish, as a worker does; a terminal event stores its result first."""
        for event in events:
            self.log_only(event)
            self.publish_only(event)

    def log_only(self, event: Event) -> None:
        if isinstance(event, FinishedEvent):
            self.results[event.id] = pack(event.result)
        if isinstance(event, FailedEvent):
            result = Result(id=event.id, status=State.FAILED, failure=event.failure, worker="w1")
            self.results[event.id] = pack(result)
        self.logs[event.id].append(pack(event))
        self.seqs[event.id] = event.seq + 1

    def publish_only(self, event: Event) -> None:
        self.publish_packed(event.id, pack(event))

    def publish_packed(self, job_id: str, packed: bytes) -> None:
        for channel in self._channels[job_id]:
            channel.put_nowait(packed)

    def fall_silent(self, job_id: str) -> None:
        """Notify every subscriber that events may have been missed."""
        for channel in self._channels[job_id]:
            channel.put_nowait(None)

    def watchers(self, job_id: str) -> int:
        return len(self._channels[job_id])

    async def result(self, job_id: str) -> bytes | None:
        return self.results.get(job_id)

    async def state(self, job_id: str) -> str | None:
        known = job_id in self.seqs or any(job.id == job_id for job in self.submitted)
        return self.states.get(job_id, "queued" if known else None)

    async def next_seq(self, job_id: str) -> int | None:
        return self.seqs.get(job_id)

    async def cancel(self, job_id: str) -> str | None:
        self.cancelled.append(job_id)
        return await self.state(job_id)

    async def forget(self, job_ids: Sequence[str]) -> None:
        self.forgotten += job_ids

    async def workers(self, partition: int = 0) -> list[WorkerRecord]:
        self.looks += 1
        return self.records

    async def registered(self, partition: int = 0) -> list[tuple[WorkerRecord, bool]]:
        return [(record, record not in self.lapsed) for record in [*self.records, *self.lapsed]]

    async def log(self, job_id: str, after: int = -1) -> list[bytes]:
        return [packed for packed in self.logs[job_id] if unpack_event(packed).seq > after]

    @asynccontextmanager
    async def subscribe(self, job_id: str) -> AsyncIterator[AsyncIterator[bytes | None]]:
        channel: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._channels[job_id].append(channel)
        self.subscribed.set()

        async def published() -> AsyncIterator[bytes | None]:
            while True:
                yield await channel.get()

        try:
            yield published()
        finally:
            self._channels[job_id].remove(channel)

    async def close(self) -> None:
        self.closed += 1


class SlowToSubmit(ScriptedTransport):
    """Takes every job, but never confirms it."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = asyncio.Event()

    async def submit(self, jobs: Sequence[Job]) -> list[str]:
        await super().submit(jobs)
        self.begun.set()
        return await asyncio.get_running_loop().create_future()


CANNED = {
    Skill.QUERY: Output(answer="two red circles"),
    Skill.CAPTION: Output(caption="shapes on paper"),
    Skill.DETECT: Output(objects=[Box(0.1, 0.2, 0.5, 0.6), Box(0.6, 0.1, 0.9, 0.4)]),
    Skill.POINT: Output(points=[Point(0.25, 0.75)]),
}


def answer(job: Job) -> list[Event]:
    """A worker's events for a job that completes with the canned output of its skill."""
    output = CANNED[job.skill]
    if job.reasoning:
        output = Output(answer=output.answer, reasoning=Reasoning("I count.", []))
    events: list[Event] = [QueuedEvent(id=job.id, seq=0), StartedEvent(id=job.id, seq=1, attempt=1)]
    if output.reasoning:
        events.append(ReasoningEvent(id=job.id, seq=len(events), attempt=1, text=output.reasoning.text))
    for piece in (output.answer or output.caption or "").partition(" "):
        if piece:
            events.append(DeltaEvent(id=job.id, seq=len(events), attempt=1, text=piece))
    for box in output.objects or ():
        place = {"x_min": box.x_min, "y_min": box.y_min, "x_max": box.x_max, "y_max": box.y_max}
        events.append(ObjectEvent(id=job.id, seq=len(events), attempt=1, object=place))
    for at in output.points or ():
        events.append(ObjectEvent(id=job.id, seq=len(events), attempt=1, object={"x": at.x, "y": at.y}))
    return [*events, FinishedEvent(id=job.id, seq=len(events), attempt=1, result=completed(job.id, job.skill, output))]


def completed(job_id: str, skill: Skill, output: Output) -> Result:
    return Result(
        id=job_id,
        status=State.COMPLETED,
        skill=skill,
        output=output,
        finish_reason="stop",
        metrics=Metrics(input_tokens=740, output_tokens=5),
        worker="w1",
        model="tiny",
    )


def failing(failure: Failure) -> Script:
    """A worker that fails every job with this failure."""
    return lambda job: [QueuedEvent(id=job.id, seq=0), FailedEvent(id=job.id, seq=1, attempt=1, failure=failure)]
