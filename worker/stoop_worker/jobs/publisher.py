"""Gathers events and endings for a few milliseconds, then writes them to the broker together."""

import asyncio
import random
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
from stoop_worker.jobs.broker import Broker, Delivery, EventGroup, Settlement
from stoop_worker.jobs.redis.claims import Place, place_of

__all__ = ["Identity", "Publisher"]

log = structlog.get_logger(__name__)

_RUNS_AGAIN = outcomes.Retry | outcomes.Released | outcomes.Crashed


@dataclass(frozen=True, slots=True)
class Identity:
    """The worker instance and the model, by their names in results."""

    worker: str
    model: str


_TOGETHER = 0.002  # seconds in which endings gather: an engine's step ends several jobs at once


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
    note: bytes
    settled: asyncio.Future[bool]


class Publisher:
    """Numbers the events of each delivery, merges deltas that wait together, and settles.

    One flush writes everything gathered since the last: events first, then endings. Events gather for `interval`
    seconds; endings and the last events before them gather only for a moment, because a caller waits for them.
    """

    def __init__(self, broker: Broker, identity: Identity, *, interval: float = 0.02) -> None:
        self._broker = broker
        self._identity = identity
        self._interval = interval
        self._tracks: dict[Place, _Track] = {}
        self._endings: list[_Ending] = []
        self._something = asyncio.Event()
        self._ended = asyncio.Event()

    def begin(self, delivery: Delivery) -> None:
        """Start publishing for a delivery; if it will run, add `started`, or `restarted` if it has events already."""
        self._tracks[place_of(delivery)] = _Track(delivery, delivery.next_seq)
        if delivery.verdict is not None:
            return
        # a released run keeps its attempt number, but its watchers have already seen events
        fresh = delivery.attempt == 1 and delivery.next_seq <= 1
        kind = events.StartedEvent if fresh else events.RestartedEvent
        self.say(delivery, lambda seq: kind(id=delivery.job_id, seq=seq, attempt=delivery.attempt))

    def say(self, delivery: Delivery, build: Callable[[int], events.Event]) -> None:
        """Add an event to the next flush; `build` makes it from its number."""
        track = self._tracks[place_of(delivery)]
        said = build(track.next_seq)
        if track.unsent and (merged := _merge(track.unsent[-1], said)):
            track.unsent[-1] = merged
        else:
            track.unsent.append(said)
            track.next_seq += 1
        self._something.set()

    async def settle(
        self, delivery: Delivery, outcome: outcomes.Outcome, result: Result | None = None, *, note: bytes = b""
    ) -> bool:
        """End a delivery; True once the broker has stored the end, False if this worker had lost the job.

        A job that will run again publishes no result. The same step stores a `note` for Celery.
        """
        settled: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        track = self._tracks.pop(place_of(delivery))
        self._endings.append(_Ending(track, outcome, result, note, settled))
        self._something.set()
        self._ended.set()
        return await settled

    async def run(self) -> None:
        """Flush for ever: events at most once per interval, and endings as soon as there are any."""
        now = asyncio.get_running_loop().time
        while True:
            await self._something.wait()
            self._something.clear()
            self._ended.clear()
            await self._flush(self._tracks.values())
            due = now() + self._interval
            while await self._ends_before(due):
                await asyncio.sleep(_TOGETHER)
                self._ended.clear()
                await self._flush(())

    async def _ends_before(self, due: float) -> bool:
        try:
            async with asyncio.timeout_at(due):
                return await self._ended.wait()
        except TimeoutError:
            return False

    async def _flush(self, going_on: Iterable[_Track]) -> None:
        """Write the events of these tracks and all endings."""
        endings, self._endings = self._endings, []
        tracks = [*going_on, *(ending.track for ending in endings)]
        groups = [_take_unsent(track) for track in tracks if track.unsent]
        settlements = [self._settlement(ending) for ending in endings]
        if groups:
            await _until_written(lambda: self._broker.append(groups))
        if settlements:
            settled = await _until_written(lambda: self._broker.settle(settlements))
            _resolve(endings, settled)

    def _settlement(self, ending: _Ending) -> Settlement:
        delivery, seq = ending.track.delivery, ending.track.next_seq
        if ending.result is None or isinstance(ending.outcome, _RUNS_AGAIN):
            return Settlement(delivery=delivery, outcome=ending.outcome, seq=seq, event=b"", result=b"")
        result = msgspec.structs.replace(
            ending.result, attempt=delivery.attempt, worker=self._identity.worker, model=self._identity.model
        )
        last = {"event": pack(_last_event(result, seq)), "result": pack(result), "note": ending.note}
        return Settlement(delivery=delivery, outcome=ending.outcome, seq=seq, **last)


async def _until_written(write: Callable[[], Awaitable[list[bool]]]) -> list[bool]:
    """Write, and retry during a Redis outage, so that no answer is lost."""
    longest = 0.1
    while True:
        try:
            return await write()
        except QueueUnavailable as error:
            log.debug("events wait for Redis", error=str(error))
        await asyncio.sleep(random.uniform(longest / 2, longest))
        longest = min(5.0, 2 * longest)


def _take_unsent(track: _Track) -> EventGroup:
    unsent, track.unsent = track.unsent, []
    return EventGroup(track.delivery, unsent[0].seq, tuple(pack(said) for said in unsent))


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
