"""The table of routes. Router, scopes and the OpenAPI document are made from it, and nothing is served beside it."""

from functools import partial
from typing import Any, Final

from stoop.gateway import health, jobs, model_routes, moondream
from stoop.gateway.documents import show_docs, show_openapi
from stoop.gateway.pages.page_routes import PAGE_ROUTES
from stoop.gateway.route import Route

__all__ = ["ROUTES"]


def _skill(name: str, body: type, summary: str, *, streams: bool = False) -> Route:
    return Route(
        method="POST",
        path=f"/v1/{name}",
        run=partial(moondream.answer_skill, skill=name),
        summary=summary,
        tag="Moondream",
        body=body,
        answer=moondream.MoondreamAnswer,
        statuses=(200, 202),
        streams=streams,
    )


_MOONDREAM: Final = (
    _skill("query", moondream.QueryRequest, "Answer a question about an image.", streams=True),
    _skill("caption", moondream.CaptionRequest, "Describe an image.", streams=True),
    _skill("detect", moondream.DetectRequest, "Find every such object in an image, as boxes."),
    _skill("point", moondream.PointRequest, "Point at every such object in an image."),
)

_JOBS: Final = (
    Route(
        method="POST",
        path="/v1/jobs",
        run=jobs.submit_job,
        summary="Submit a job and return its id.",
        tag="Jobs",
        body=jobs.JobRequest,
        answer=dict[str, str],
        statuses=(202,),
    ),
    Route(
        method="GET",
        path="/v1/jobs/{id}",
        run=jobs.job_status,
        summary="Show a job's state, and its result once it has one.",
        tag="Jobs",
        answer=jobs.JobStatus,
    ),
    Route(
        method="DELETE",
        path="/v1/jobs/{id}",
        run=jobs.cancel_job,
        summary="Cancel a job.",
        tag="Jobs",
        answer=jobs.JobStatus,
    ),
    Route(
        method="GET",
        path="/v1/jobs/{id}/events",
        run=jobs.job_events,
        summary="Follow a job's events; `Last-Event-ID` resumes.",
        tag="Jobs",
        statuses=(200, 204),
        streams=True,
        query=("after",),
    ),
)

_MODELS: Final = (
    Route(
        method="GET",
        path="/v1/models",
        run=model_routes.list_models,
        summary="List the models.",
        tag="OpenAI",
        answer=model_routes.ModelList,
    ),
    Route(
        method="GET",
        path="/v1/models/{id:path}",
        run=model_routes.show_model,
        summary="Show one model.",
        tag="OpenAI",
        answer=model_routes.ModelCard,
    ),
)

_ABOUT: Final = (
    Route(
        method="GET",
        path="/healthz",
        run=health.healthz,
        summary="Say whether the gateway and Redis are alive.",
        tag="About",
        scope=None,
        answer=dict[str, Any],
        query=("workers",),
    ),
    Route(
        method="GET",
        path="/readyz",
        run=health.readyz,
        summary="Say whether requests are welcome.",
        tag="About",
        scope=None,
        answer=dict[str, Any],
        query=("workers",),
    ),
    Route(
        method="GET",
        path="/openapi.json",
        run=show_openapi,
        summary="Show this interface as OpenAPI.",
        tag="About",
        scope=None,
        answer=dict[str, Any],
    ),
    Route(
        method="GET",
        path="/docs",
        run=show_docs,
        summary="Show this interface to people.",
        tag="About",
        scope=None,
        media_type="text/html",
    ),
)

ROUTES: Final = (*_MOONDREAM, *_JOBS, *_MODELS, *_ABOUT, *PAGE_ROUTES)
