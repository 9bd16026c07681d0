"""The pages' rows of the table of routes."""

from typing import Any, Final

from stoop.gateway.dead_causes import Causes
from stoop.gateway.keys import Scope
from stoop.gateway.pages import choice, files, letters, queue_routes, record, uploads
from stoop.gateway.route import Route

__all__ = ["PAGE_ROUTES"]


def _file(path: str, run: Any, summary: str, media_type: str = "text/html") -> Route:
    return Route(method="GET", path=path, run=run, summary=summary, tag="Pages", scope=None, media_type=media_type)


def _queue(path: str, run: Any, summary: str, answer: Any, scope: Scope = Scope.METRICS, **more: Any) -> Route:
    return Route(method="GET", path=path, run=run, summary=summary, tag="Queue", scope=scope, answer=answer, **more)


def _change(path: str, run: Any, summary: str, answer: Any, body: Any = None) -> Route:
    return Route(
        method="POST",
        path=path,
        run=run,
        summary=summary,
        tag="Queue",
        scope=Scope.OPERATOR,
        body=body,
        answer=answer,
    )


_FILES: Final = (
    _file("/", files.show_playground, "Show the playground."),
    _file("/dashboard", files.show_dashboard, "Show the dashboard."),
    _file("/pages/{name}", files.show_file, "Load a file of the pages.", "text/javascript"),
)

_UPLOADS: Final = (
    Route(
        method="POST",
        path="/v1/images",
        run=uploads.upload_picture,
        summary="Upload a picture, the body, and return its address.",
        tag="Pages",
        answer=uploads.Picture,
    ),
    Route(
        method="POST",
        path="/v1/recordings",
        run=uploads.upload_recording,
        summary="Upload a recording, the body, and return its address.",
        tag="Pages",
        answer=uploads.Recording,
    ),
    Route(
        method="GET",
        path="/v1/images",
        run=uploads.show_picture,
        summary="Show the picture at an address.",
        tag="Pages",
        query=("address",),
        media_type="image/png",
    ),
)

_QUEUE: Final = (
    _queue("/v1/queue", queue_routes.show_queue, "Count what is in the queue.", queue_routes.QueueNow),
    _queue("/v1/queue/events", queue_routes.queue_events, "Follow the queue's counts.", None, streams=True),
    _queue("/v1/dead/causes", letters.list_causes, "Group dead letters by their cause.", Causes),
    _queue(
        "/v1/dead",
        letters.list_letters,
        "List dead letters.",
        letters.LetterPage,
        Scope.OPERATOR,
        query=("code", "message", "search", "before"),
    ),
    _queue(
        "/v1/jobs/{id}/record",
        record.job_record,
        "Show what the queue knows of a job.",
        record.JobRecord,
        Scope.OPERATOR,
    ),
    _queue("/v1/queue/held", record.list_held, "List delayed and quarantined jobs.", record.HeldJobs, Scope.OPERATOR),
    _change("/v1/dead/redrive", letters.redrive_letters, "Redrive dead letters.", letters.Outcome, choice.Choice),
    _change("/v1/dead/purge", letters.purge_letters, "Delete dead letters.", letters.Outcome, choice.Choice),
    _change("/v1/queue/lanes/{lane}/pause", queue_routes.pause_lane, "Pause a lane.", queue_routes.LaneState),
    _change("/v1/queue/lanes/{lane}/resume", queue_routes.resume_lane, "Resume a lane.", queue_routes.LaneState),
)

PAGE_ROUTES: Final = (*_FILES, *_UPLOADS, *_QUEUE)
