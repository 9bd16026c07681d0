"""Server-sent events. The status waits for the first piece, comments fill a silence, and a failure is an event.

A stream that has begun cannot change its status, so it begins only with the job's first significant event: a job that
fails before that gets its real status. Proxies cut silent connections, so the wait is bounded; then the stream
begins and sends comments. A failure from then on is an error event, and the stream ends without the mark of a clean
end.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable
from typing import Final, Protocol

from sse_starlette import EventSourceResponse, ServerSentEvent
from sse_starlette.sse import AppStatus
from starlette.responses import Response

from stoop.errors import StoopError
from stoop.gateway.call import Call
from stoop.gateway.errors import ApiError, from_stoop
from stoop.gateway.pieces import Piece, Pieces
from stoop.gateway.submission import accepted, submit
from stoop_schemas.job import Job
from stoop_schemas.result import Result

__all__ = ["Frames", "error_frame", "event_stream", "frame", "stream_job"]

_SEND_SECONDS: Final = 60.0
"""A client that reads nothing for so long is cut off."""

# this package ends its streams itself, after their grace, with an error event
AppStatus.enable_automatic_graceful_drain = False


class Frames(Protocol):
    """One API's way to write a stream: the `data` of its events."""

    def opening(self) -> Iterable[str]:
        """Return the data before the first piece."""

    def piece(self, piece: Piece) -> Iterable[str]:
        """Return the data of one piece."""

    def ending(self, result: Result) -> Iterable[str]:
        """Return the data after the last piece of a completed job."""


async def stream_job(call: Call, job: Job, frames: Frames) -> Response:
    """Submit the job and stream its text. Raises `StoopError` or `ApiError` for a failure before the first piece."""
    if call.wants_no_wait:
        return accepted(call, await submit(call, job))
    job_id = await call.unless_left(submit(call, job))
    seconds = call.gateway.client.config.timeout_seconds
    pieces = Pieces(call.follow(job_id, timeout=seconds, cancels=not call.keeps_job))
    first = asyncio.create_task(pieces.next())
    call.closes(first.cancel)
    held = asyncio.wait({first}, timeout=call.gateway.options.hold_seconds)
    await call.unless_left(held)
    if first.done():
        first.result()
    return event_stream(call, _frames_of(call, first, pieces, frames))


def event_stream(call: Call, events: AsyncGenerator[ServerSentEvent, None]) -> Response:
    """Return a response of these events, with comments in their silences."""
    headers = {**call.headers, "content-type": "text/event-stream; charset=utf-8"}
    return EventSourceResponse(
        events,
        headers=headers,
        ping=call.gateway.options.ping_seconds,
        ping_message_factory=lambda: ServerSentEvent(comment="ping", sep="\n"),
        sep="\n",
        send_timeout=_SEND_SECONDS,
    )


def frame(data: str) -> ServerSentEvent:
    """Return an event that has only data."""
    return ServerSentEvent(data, sep="\n")


def error_frame(error: StoopError | ApiError, job_id: str | None = None) -> ServerSentEvent:
    """Return the event for a failure in the middle of a stream; nothing may follow it."""
    api_error = from_stoop(error, job_id) if isinstance(error, StoopError) else error
    return frame(api_error.body.decode())


async def _frames_of(
    call: Call, first: "asyncio.Task[list[Piece]]", pieces: Pieces, frames: Frames
) -> AsyncGenerator[ServerSentEvent, None]:
    try:
        for data in frames.opening():
            yield frame(data)
        found = await first
        while True:
            for piece in found:
                for data in frames.piece(piece):
                    yield frame(data)
            if pieces.result is not None:
                call.spent(pieces.result)
                for data in frames.ending(pieces.result):
                    yield frame(data)
                return
            found = await pieces.next()
    except (StoopError, ApiError) as error:
        yield error_frame(error)
