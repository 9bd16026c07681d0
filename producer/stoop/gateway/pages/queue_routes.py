"""The dashboard's view of the queue, once and as a stream; lanes paused and resumed."""

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
from stoop.gateway.queue_watch import QueueView
from stoop.gateway.stream import event_stream, frame

__all__ = [
    "LaneState",
    "QueueNow",
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
