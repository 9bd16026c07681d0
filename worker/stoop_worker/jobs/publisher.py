"""Gathers events and endings for a few milliseconds, then writes them to the broker together."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

import msgspec
import structlog

from stoop_schemas import event as events
from stoop_schemas.codec import pack
from stoop_schemas.result import Result
from stoop_schemas.state import State
from stoop_worker.errors import QueueUnavailable
from stoop_worker.jobs import outcome as outcomes
from stoop_worker.jobs.backoff import Backoff
from stoop_worker.jobs.broker import Broker, Delivery, DeliveryKey, EventGroup, Settlement

__all__ = ["Identity", "Publisher"]

log = structlog.get_logger(__name__)

_RUNS_AGAIN = outcomes.Retry | outcomes.Released | outcomes.Crashed


@dataclass(frozen=True, slots=True)
class Identity:
    """The worker instance and the model, by their names in results."""

    worker: str
    model: str


_ENDINGS_SECONDS = 0.002  # the time in which endings gather while many jobs end
_LONG_AGO = float("-inf")


@dataclass(slots=True)
class _Track:
    """The events of one delivery: `next_seq` numbers the next one, `unsent` holds those for the next flush."""

    delivery: Delivery
    next_seq: int
    unsent: list[events.Event] = field(default_factory=list)


@dataclass(slots=True)
class _Ending:
    track: _Track
    outcome: outcomes.Outcome
    result: Result | None
    celery_ending: bytes
    settled: asyncio.Future[bool]


class Publisher:
    """Numbers the events of each delivery, merges deltas that wait together, and settles.

    A flush writes events first, then endings. It writes events at most once per `interval` seconds, and at once if the
    last ones were written longer ago. A caller waits for each ending. So endings, and the last events before them,
    gather only for a moment, and only if the flush just before had several endings. Nothing wakes the event loop while
    there is nothing to write.
    """

    def __init__(self, broker: Broker, identity: Identity, *, interval: float = 0.02) -> None:
        self._broker = broker
        self._identity = identity
        self._interval = interval
        self._tracks: dict[DeliveryKey, _Track] = {}
        self._endings: list[_Ending] = []
        self._has_work = asyncio.Event()  # endings, or events that may be written now
        self._events_due = _LONG_AGO  # when events may be written again, by the loop's clock
        self._writes_events = False  # True if the next flush writes events
        self._timer: asyncio.TimerHandle | None = None  # set while events wait until they are due

    def begin(self, delivery: Delivery) -> None:
        """Start publishing for a delivery; if it will run, add `started`, or `restarted` if it has events already."""
        self._tracks[delivery.key] = _Track(delivery, delivery.next_seq)
        if delivery.verdict is not None:
            return
        # a released run keeps its attempt number, but its watchers have already seen events
        fresh = delivery.attempt == 1 and delivery.next_seq <= 1
        kind = events.StartedEvent if fresh else events.RestartedEvent
        self.add_event(delivery, lambda seq: kind(id=delivery.job_id, seq=seq, attempt=delivery.attempt))

    def add_event(self, delivery: Delivery, build: Callable[[int], events.Event]) -> None:
        """Add an event to the next flush; `build` makes it from its number."""
        track = self._tracks[delivery.key]
        event = build(track.next_seq)
        if track.unsent and (merged := _merge(track.unsent[-1], event)):
            track.unsent[-1] = merged
        else:
            track.unsent.append(event)
            track.next_seq += 1
        if self._timer is None and not self._writes_events:
            loop = asyncio.get_running_loop()
            if loop.time() < self._events_due:
                self._timer = loop.call_at(self._events_due, self._write_events)
            else:
                self._write_events()

    async def settle(
        self, delivery: Delivery, outcome: outcomes.Outcome, result: Result | None = None, *, celery_ending: bytes = b""
    ) -> bool:
        """End a delivery; True once the broker has stored the end, False if this worker had lost the job.

        A job that will run again publishes no result. The same step stores `celery_ending` for Celery.
        """
        settled: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        track = self._tracks.pop(delivery.key)
        self._endings.append(_Ending(track, outcome, result, celery_ending, settled))
        self._has_work.set()
        return await settled

    async def run(self) -> None:
        """Flush for ever: events at most once per interval, and endings as soon as there are any."""
        now, several, flushed = asyncio.get_running_loop().time, False, _LONG_AGO
        while True:
            await self._has_work.wait()
            if several and self._endings and now() < flushed + self._interval:
                await asyncio.sleep(_ENDINGS_SECONDS)
            self._has_work.clear()
            running: Iterable[_Track] = ()
            if self._writes_events:
                self._writes_events, self._events_due = False, now() + self._interval
                running = self._tracks.values()
            several, flushed = await self._flush(running) > 1, now()

    def _write_events(self) -> None:
        self._timer, self._writes_events = None, True
        self._has_work.set()

    async def _flush(self, running: Iterable[_Track]) -> int:
        """Write the events of these tracks and all endings; return the number of endings."""
        endings, self._endings = self._endings, []
        tracks = [*running, *(ending.track for ending in endings)]
        groups = [_take_unsent(track) for track in tracks if track.unsent]
        settlements = [self._settlement(ending) for ending in endings]
        if groups:
            await _until_written(lambda: self._broker.append(groups))
        if settlements:
            settled = await _until_written(lambda: self._broker.settle(settlements))
            _resolve(endings, settled)
        return len(endings)

    def _settlement(self, ending: _Ending) -> Settlement:
        delivery, seq = ending.track.delivery, ending.track.next_seq
        if ending.result is None or isinstance(ending.outcome, _RUNS_AGAIN):
            return Settlement(delivery=delivery, outcome=ending.outcome, seq=seq, event=b"", result=b"")
        result = msgspec.structs.replace(
            ending.result, attempt=delivery.attempt, worker=self._identity.worker, model=self._identity.model
        )
        last = {"event": pack(_last_event(result, seq)), "result": pack(result), "celery_ending": ending.celery_ending}
        return Settlement(delivery=delivery, outcome=ending.outcome, seq=seq, **last)


async def _until_written(write: Callable[[], Awaitable[list[bool]]]) -> list[bool]:
    """Write, and retry during a Redis outage, so that no answer is lost."""
    backoff = Backoff(first=0.1)
    while True:
        try:
            return await write()
        except QueueUnavailable as error:
            log.debug("events wait for Redis", error=str(error))
        await asyncio.sleep(backoff.next())


def _take_unsent(track: _Track) -> EventGroup:
    unsent, track.unsent = track.unsent, []
    return EventGroup(track.delivery, unsent[0].seq, tuple(pack(event) for event in unsent))


def _resolve(endings: list[_Ending], settled: list[bool]) -> None:
    for ending, ours in zip(endings, settled, strict=True):
        if not ending.settled.done():
            ending.settled.set_result(ours)


def _merge(before: events.Event, after: events.Event) -> events.Event | None:
    """Return the two as one event if they are pieces of the same text."""
    match before, after:
        case events.DeltaEvent(), events.DeltaEvent():
            return msgspec.structs.replace(before, text=before.text + after.text)
        case events.ReasoningEvent(), events.ReasoningEvent():
            return msgspec.structs.replace(before, text=before.text + after.text)
        case _:
            return None


def _last_event(result: Result, seq: int) -> events.TerminalEvent:
    match result.status:
        case State.COMPLETED:
            return events.FinishedEvent(id=result.id, seq=seq, attempt=result.attempt, result=result)
        case State.CANCELLED:
            return events.CancelledEvent(id=result.id, seq=seq, attempt=result.attempt)
        case State.EXPIRED:
            return events.ExpiredEvent(id=result.id, seq=seq, attempt=result.attempt)
        case _:
            assert result.failure is not None, "a failed result says why"
            return events.FailedEvent(id=result.id, seq=seq, attempt=result.attempt, failure=result.failure)
