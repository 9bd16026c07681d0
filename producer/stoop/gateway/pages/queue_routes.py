"""The dashboard's view of the queue, once and as a stream; lanes paused and resumed; one job's record."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import msgspec
from sse_starlette import ServerSentEvent
from starlette.responses import Response

from stoop.gateway.answer import json_response
from stoop.gateway.call import Call
from stoop.gateway.errors import ApiError
from stoop.gateway.keys import Scope
from stoop.gateway.pages.letters import LetterView, view_of
from stoop.gateway.pages.watch import QueueView
from stoop.gateway.stream import event_stream, frame

__all__ = [
    "JobRecord",
    "LaneState",
    "QueueNow",
    "job_record",
    "pause_lane",
    "queue_events",
    "resume_lane",
    "show_queue",
]


class QueueNow(QueueView, frozen=True, kw_only=True):
    """The queue, and whether the caller's key may change it."""

    operator: bool


class LaneState(msgspec.Struct, frozen=True):
    """A lane, and whether workers may claim from it."""

    lane: str
    paused: bool


class JobRecord(msgspec.Struct, frozen=True):
    """A job as the queue stores it: the fields of its record, and its dead letter if it has one."""

    id: str
    record: dict[str, str]
    letter: LetterView | None


async def show_queue(call: Call) -> Response:
    """Answer `GET /v1/queue`."""
    view = msgspec.structs.asdict(await call.gateway.watch.look())
    return json_response(call, QueueNow(**view, operator=call.may(Scope.OPERATOR)))


async def queue_events(call: Call) -> Response:
    """Answer `GET /v1/queue/events`: the queue, once a second."""
    return event_stream(call, _events(call))


async def _events(call: Call) -> AsyncGenerator[ServerSentEvent, None]:
    watch, closing = call.gateway.watch, call.gateway.closing
    with watch.viewing():
        while True:
            view = watch.coming()
            ends: list[asyncio.Future[Any]] = [view, closing]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if not view.done():
                return
            yield frame(view.result().decode())


async def pause_lane(call: Call) -> Response:
    """Answer `POST /v1/queue/lanes/{lane}/pause`."""
    lane = await _lane(call)
    await call.gateway.operator.pause(lane)
    return json_response(call, LaneState(lane, paused=True))


async def resume_lane(call: Call) -> Response:
    """Answer `POST /v1/queue/lanes/{lane}/resume`."""
    lane = await _lane(call)
    await call.gateway.operator.resume(lane)
    return json_response(call, LaneState(lane, paused=False))


async def _lane(call: Call) -> str:
    """Return the lane of the path; raise an `ApiError` (404) if there is none."""
    lane = str(call.request.path_params["lane"])
    if lane not in {each["lane"] for each in (await call.gateway.watch.look()).lanes}:
        raise ApiError(404, "lane_not_found", "there is no such lane")
    return lane


async def job_record(call: Call) -> Response:
    """Answer `GET /v1/jobs/{id}/record`; raise an `ApiError` (404) for a job that the queue does not know."""
    job_id = call.request.path_params["id"]
    letter = await call.gateway.operator.find(job_id)
    record: dict[str, Any] = dict(await call.gateway.operator.job(job_id if letter is None else letter.job_id))
    if not record and letter is None:
        raise ApiError(404, "job_not_found", "there is no such job, or not any more")
    shown = None if letter is None else view_of(letter)
    return json_response(call, JobRecord(job_id if letter is None else letter.job_id, record, shown))
