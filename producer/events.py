"""The events of one job, whole and in order, from a channel that may lose some and a log that keeps them.

Redis pub/sub drops what a late, slow or disconnected subscriber missed; the log has it. So: subscribe first, read
the log, drop what repeats, and read the log again whenever `seq` shows a gap or the transport reports a silence. A
Redis that goes away meanwhile is waited for.
Events of a type that is not known here, from a newer worker, count in `seq` and are passed over.
"""

import contextlib
from collections.abc import AsyncGenerator, Sequence
from typing import Final, get_args

import msgspec

from producer.errors import JobCancelled, JobExpired, JobFailed, QueueUnavailable, StoopError
from producer.outage import OUTAGE_SECONDS, Outage
from producer.transport import Transport
from schemas.codec import unpack_event, unpack_result
from schemas.event import (
    CancelledEvent,
    Event,
    ExpiredEvent,
    FailedEvent,
    FinishedEvent,
    TerminalEvent,
)
from schemas.failure import Failure, FailureCode, Rejected
from schemas.result import Result
from schemas.state import State

__all__ = ["completed", "ending", "follow", "wait"]


class _UnknownEvent(msgspec.Struct, frozen=True):
    """What every event has, of whatever type."""

    type: str
    seq: int


_KNOWN: Final = frozenset(kind.__struct_config__.tag for kind in get_args(Event))


async def follow(
    transport: Transport, job_id: str, after: int = -1, *, patience: float = OUTAGE_SECONDS
) -> AsyncGenerator[Event, None]:
    """Yield the job's events from its first to its terminal one, each once; wait for those to come.

    Begins behind the event whose `seq` is `after`. If the log has expired, the terminal event is made of the result. A
    job the queue does not know yet is waited for. Raises `QueueUnavailable` when Redis is not there, or goes away and
    stays away for `patience` seconds.
    """
    last, outage = after, Outage(patience)
    async with transport.subscribe(job_id) as published:
        fresh = await _missed(transport, job_id, last)
        while True:
            for event in fresh:
                last = event.seq
                if isinstance(event, _UnknownEvent):
                    continue
                yield event
                if isinstance(event, TerminalEvent):
                    return
            try:
                packed = await anext(published)
            except StopAsyncIteration:
                raise _ended(job_id) from None
            told = None if packed is None else _event(packed)
            if told is not None and told.seq <= last + 1:
                fresh = [told] if told.seq == last + 1 else []
                continue
            try:
                fresh = await _missed(transport, job_id, last)
                outage.end()
            except QueueUnavailable as error:
                # nothing is lost: the transport will tell of a silence again
                outage.bear(error)
                fresh = []


async def wait(transport: Transport, job_id: str, *, patience: float = OUTAGE_SECONDS) -> Result:
    """Return the job's result as soon as there is one, whatever its status.

    Raises `QueueUnavailable` when Redis is not there, or goes away and stays away for `patience` seconds.
    """
    outage = Outage(patience)
    async with transport.subscribe(job_id) as published:
        packed = await transport.result(job_id)
        if packed is not None:
            return _result(packed)
        async for told in published:
            # the result is stored together with the terminal event, so no other event is a reason to look
            if told is None or isinstance(_event(told), TerminalEvent | _UnknownEvent):
                try:
                    packed = await transport.result(job_id)
                    outage.end()
                except QueueUnavailable as error:
                    outage.bear(error)
                    continue
                if packed is not None:
                    return _result(packed)
    raise _ended(job_id)


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
    """Return the result that a terminal event tells of; only that of a finished job is whole."""
    if isinstance(event, FinishedEvent):
        return event.result
    if isinstance(event, FailedEvent):
        return Result(id=event.id, status=State.FAILED, failure=event.failure, attempt=event.attempt)
    status = State.CANCELLED if isinstance(event, CancelledEvent) else State.EXPIRED
    return Result(id=event.id, status=status, attempt=event.attempt)


async def _missed(transport: Transport, job_id: str, last: int) -> Sequence[Event | _UnknownEvent]:
    """Return the events after `last`: from the log or, where that has none, the terminal one from the result."""
    logged = [_event(packed) for packed in await transport.log(job_id, last)]
    if logged:
        return logged
    packed = await transport.result(job_id)
    if packed is None:
        return []
    # the job may have ended between the two reads: only a log that is still empty has expired
    logged = [_event(packed) for packed in await transport.log(job_id, last)]
    return logged or [_terminal(_result(packed), last + 1)]


def _event(packed: bytes) -> Event | _UnknownEvent:
    try:
        return unpack_event(packed)
    except Rejected as error:
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            unknown = msgspec.json.decode(packed, type=_UnknownEvent)
            if unknown.type not in _KNOWN:
                return unknown
        raise _unreadable(error) from error


def _result(packed: bytes) -> Result:
    try:
        return unpack_result(packed)
    except Rejected as error:
        raise _unreadable(error) from error


def _unreadable(error: Rejected) -> StoopError:
    return StoopError(f"what the queue tells cannot be read ({error}): is a worker newer than this client?")


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


def _ended(job_id: str) -> QueueUnavailable:
    return QueueUnavailable(f"the subscription to job {job_id} ended before the job did: is the client closed?")
