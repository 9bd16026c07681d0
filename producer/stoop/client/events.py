"""The events of one job, whole and in order, from a channel that may lose some and a log that keeps them.

Redis pub/sub drops the events that a late, slow or disconnected subscriber missed; the log has them. So: subscribe
first, read the log, drop repeats, and read the log again whenever `seq` shows a gap or the transport reports a silence.
During an outage of Redis the reader waits. Events of an unknown type, from a newer worker, count in `seq` and are
skipped.
"""

import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Final

from stoop.client.outage import OUTAGE_SECONDS, Outage
from stoop.client.transport import Transport
from stoop.errors import (
    ClientUnusable,
    JobCancelled,
    JobExpired,
    JobFailed,
    NotFound,
    QueueUnavailable,
    StoopError,
)
from stoop_schemas import names
from stoop_schemas.codec import unpack_event, unpack_result
from stoop_schemas.event import (
    CancelledEvent,
    Event,
    ExpiredEvent,
    FailedEvent,
    FinishedEvent,
    TerminalEvent,
    UnknownEvent,
)
from stoop_schemas.failure import Failure, FailureCode, Rejected
from stoop_schemas.result import Result
from stoop_schemas.state import State

__all__ = ["SILENCE_SECONDS", "completed", "ending", "follow", "listen", "stored", "wait"]

SILENCE_SECONDS: Final = 30.0
"""After so long without an event `follow` asks whether the queue still knows the job, and goes on if it does."""


async def follow(
    transport: Transport,
    job_id: str,
    after: int = -1,
    *,
    outage_seconds: float = OUTAGE_SECONDS,
    silence: float = SILENCE_SECONDS,
) -> AsyncGenerator[Event, None]:
    """Yield the job's events, each once, from the first to the terminal one; waits for events still to come.

    Begins after the event whose `seq` is `after`; nothing follows the terminal one. If the log has expired,
    the terminal event is made of the result. Raises `NotFound` for a job that the queue does not know: at once if a
    client made its id, otherwise after `silence` seconds, because a bare XADD is known only once a worker has claimed
    it. Raises `QueueUnavailable` when Redis is not there, or goes away and stays away for `outage_seconds`.
    """
    last, outage = max(after, -1), Outage(outage_seconds)
    catch_up = _CatchUp(transport, job_id, last, silence)
    async with transport.subscribe(job_id) as published:
        fresh = await catch_up.read(last)
        while fresh is not None:
            for event in fresh:
                last = event.seq
                catch_up.heard(event)
                if isinstance(event, UnknownEvent):
                    continue
                yield event
                if isinstance(event, TerminalEvent):
                    return
            try:
                packed = await anext(published)
            except StopAsyncIteration:
                raise _ended(job_id) from None
            live = None if packed is None else _event(packed)
            if live is not None and live.seq <= last + 1:
                fresh = [live] if live.seq == last + 1 else []
                continue
            try:
                fresh = await catch_up.read(last)
                outage.end()
            except QueueUnavailable as error:
                # nothing is lost: the transport reports the next silence too
                outage.check(error)
                fresh = []


async def wait(transport: Transport, job_id: str, *, outage_seconds: float = OUTAGE_SECONDS) -> Result:
    """Return the job's result as soon as there is one, whatever its status.

    Raises `NotFound` for an id that a client made and the queue does not know, and `QueueUnavailable` when Redis is not
    there, or goes away and stays away for `outage_seconds`.
    """
    async with transport.subscribe(job_id) as published:
        packed = await transport.result(job_id)
        if packed is not None:
            return _result(packed)
        if names.is_generated(job_id):
            await _check_known(transport, job_id)
        return await listen(transport, job_id, published, outage_seconds=outage_seconds)


async def listen(
    transport: Transport, job_id: str, published: AsyncIterator[bytes | None], *, outage_seconds: float = OUTAGE_SECONDS
) -> Result:
    """Return the job's result from its channel, to which the caller subscribed before the job could end.

    Raises `QueueUnavailable` as `wait` does.
    """
    outage = Outage(outage_seconds)
    async for message in published:
        event = None if message is None else _event(message)
        if isinstance(event, FinishedEvent):
            return event.result
        # the result is stored together with the terminal event, so no other event is a reason to look
        if event is None or isinstance(event, TerminalEvent | UnknownEvent):
            try:
                packed = await transport.result(job_id)
                outage.end()
            except QueueUnavailable as error:
                outage.check(error)
                continue
            if packed is not None:
                return _result(packed)
    raise _ended(job_id)


async def stored(transport: Transport, job_id: str) -> Result | None:
    """Return the job's result without waiting, or None if the queue has none (yet, or any more)."""
    packed = await transport.result(job_id)
    return None if packed is None else _result(packed)


def completed(result: Result) -> Result:
    """Return the result if the job completed; raise `JobFailed`, `JobCancelled` or `JobExpired` if not."""
    if result.status is State.COMPLETED:
        return result
    if result.status is State.CANCELLED:
        raise JobCancelled(result.id)
    if result.status is State.EXPIRED:
        raise JobExpired(result.id)
    raise JobFailed(_failure(result), result)


def ending(event: TerminalEvent) -> Result:
    """Return the result in a terminal event; only the event of a finished job holds a whole result."""
    if isinstance(event, FinishedEvent):
        return event.result
    if isinstance(event, FailedEvent):
        return Result(id=event.id, status=State.FAILED, failure=event.failure, attempt=event.attempt)
    status = State.CANCELLED if isinstance(event, CancelledEvent) else State.EXPIRED
    return Result(id=event.id, status=status, attempt=event.attempt)


class _CatchUp:
    """Reads missed events. After `silence` seconds without an event it checks that the queue knows the job."""

    def __init__(self, transport: Transport, job_id: str, after: int, silence: float) -> None:
        self._transport, self._job_id, self._silence = transport, job_id, silence
        self._given = after
        self._due = time.monotonic() + (0.0 if names.is_generated(job_id) else silence)

    def heard(self, event: Event | UnknownEvent) -> None:
        """Note an event; one of an unknown type is not yielded, though it may be the job's end."""
        self._due = time.monotonic() + self._silence
        if not isinstance(event, UnknownEvent):
            self._given = event.seq

    async def read(self, last: int) -> Sequence[Event | UnknownEvent] | None:
        """Return the events after `last`, or None if the terminal one was yielded before."""
        fresh = await self._logged(last)
        if not fresh and (packed := await self._transport.result(self._job_id)) is not None:
            # the job may have ended between the two reads: only a log that is still empty has expired
            return await self._logged(last) or await self._ending(_result(packed), last)
        if not fresh and time.monotonic() >= self._due:
            await _check_known(self._transport, self._job_id)
            self._due = time.monotonic() + self._silence
        return fresh

    async def _logged(self, last: int) -> Sequence[Event | UnknownEvent]:
        return [_event(packed) for packed in await self._transport.log(self._job_id, last)]

    async def _ending(self, result: Result, last: int) -> Sequence[Event] | None:
        events = await self._transport.next_seq(self._job_id)
        seq = last + 1 if events is None else events - 1
        return [_terminal(result, seq)] if self._given < seq else None


async def _check_known(transport: Transport, job_id: str) -> None:
    if await transport.state(job_id) is None:
        raise NotFound(
            f"the queue knows no job {job_id}, or has forgotten it: check the id and STOOP_REDIS_URL; answers"
            " are kept for a day, unless the workers are configured otherwise"
        )


def _event(packed: bytes) -> Event | UnknownEvent:
    try:
        return unpack_event(packed)
    except Rejected as error:
        raise _unreadable(error) from error


def _result(packed: bytes) -> Result:
    try:
        return unpack_result(packed)
    except Rejected as error:
        raise _unreadable(error) from error


def _unreadable(error: Rejected) -> StoopError:
    return StoopError(f"the queue's messages cannot be read ({error}): is a worker newer than this client?")


def _terminal(result: Result, seq: int) -> Event:
    if result.status is State.COMPLETED:
        return FinishedEvent(id=result.id, seq=seq, attempt=result.attempt, result=result)
    if result.status is State.CANCELLED:
        return CancelledEvent(id=result.id, seq=seq, attempt=result.attempt)
    if result.status is State.EXPIRED:
        return ExpiredEvent(id=result.id, seq=seq, attempt=result.attempt)
    return FailedEvent(id=result.id, seq=seq, attempt=result.attempt, failure=_failure(result))


def _failure(result: Result) -> Failure:
    return result.failure or Failure.of(FailureCode.INTERNAL, "the worker gave no reason")


def _ended(job_id: str) -> ClientUnusable:
    return ClientUnusable(f"this client was closed before job {job_id} ended")
