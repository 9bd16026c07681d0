"""A back end that takes a question, puts it in the queue, and relays its answer to browsers as server-sent events."""

import json
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path

from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

from stoop import (
    AsyncClient,
    ImageUnreadable,
    InvalidJob,
    OutputGone,
    OutputUnreadable,
    QueueFull,
    QueueUnavailable,
    State,
    StoopError,
)

__all__ = ["app"]

IMAGE_BYTES = 20 << 20
ENDED = {State.COMPLETED, State.FAILED, State.CANCELLED, State.EXPIRED}


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[dict[str, AsyncClient]]:
    """One client serves all requests: it follows any number of jobs on one connection to Redis."""
    async with AsyncClient() as client:
        yield {"client": client}


async def page(request: Request) -> Response:
    return FileResponse(Path(__file__).with_name("page.html"))


async def ask(request: Request) -> Response:
    """Submit a question; the body is the image, or empty. The job's id cannot be guessed, so anyone who has it may
    listen.
    """
    if int(request.headers.get("content-length", IMAGE_BYTES + 1)) > IMAGE_BYTES:
        return JSONResponse({"error": f"an image has up to {IMAGE_BYTES >> 20} MiB"}, 413)
    client: AsyncClient = request.state.client
    image, question = await request.body() or None, request.query_params.get("question", "")
    job = await client.prepare("query", image, question=question, stream=True)
    return JSONResponse({"id": await client.submit(job)}, 201)


async def events(request: Request) -> Response:
    """Relay a job's events, from behind the one that the browser saw last."""
    client, job_id = request.state.client, request.path_params["job_id"]
    seen = request.headers.get("last-event-id", "")
    after = int(seen) if seen.isdecimal() else -1
    with suppress(QueueUnavailable):  # an error would stop the browser; after an empty stream it reconnects
        state = await client.state(job_id)
        if state is None:
            return JSONResponse({"error": "no such job, or not any more"}, 404)
        if state in ENDED and not await has_more(client, job_id, after):
            return Response(status_code=204)  # the browser reconnects no more
    return EventSourceResponse(relay(client, job_id, after), ping=15)


async def has_more(client: AsyncClient, job_id: str, after: int) -> bool:
    """Return whether a job that has ended has an event that the browser has not seen."""
    last = await client.last_seq(job_id)
    return last is not None and after < last


async def relay(client: AsyncClient, job_id: str, after: int) -> AsyncIterator[ServerSentEvent]:
    try:
        async with aclosing(client.stream(job_id, after=after)) as stream:
            async for event in stream:
                yield ServerSentEvent(event.json(), event=event.type, id=str(event.seq))
    except (OutputGone, OutputUnreadable) as error:
        failed = {"type": "failed", "failure": {"message": str(error)}}
        yield ServerSentEvent(json.dumps(failed), event="failed")
    except StoopError:
        return  # Redis is away: the browser reconnects by itself, with the last event that it saw


async def refuse(request: Request, error: Exception) -> Response:
    headers = {"retry-after": f"{error.retry_after:.0f}"} if isinstance(error, QueueFull) else None
    status = 400 if isinstance(error, InvalidJob | ImageUnreadable) else 429 if headers else 503
    return JSONResponse({"error": str(error) if status == 400 else "try again later"}, status, headers)


routes = [
    Route("/", page),
    Route("/jobs", ask, methods=["POST"]),
    Route("/jobs/{job_id}/events", events),
]
app = Starlette(routes=routes, lifespan=lifespan, exception_handlers={StoopError: refuse})
