"""The table of routes. Router, scopes and the OpenAPI document are made from it, and nothing else is served."""

from functools import partial
from typing import Any, Final

from stoop.gateway import (
    audio,
    audio_request,
    batches,
    chat,
    chat_request,
    file_routes,
    health,
    jobs,
    model_routes,
    moondream,
    moondream_answer,
    texts,
)
from stoop.gateway.documents import show_docs, show_openapi
from stoop.gateway.files import FileObject
from stoop.gateway.keys import Scope
from stoop.gateway.pages.page_routes import PAGE_ROUTES
from stoop.gateway.route import Route
from stoop_schemas.skill import Skill
from stoop_schemas.skills import REFUSED

__all__ = ["ROUTES"]


def _post(path: str, run: Any, body: Any, summary: str, *, tag: str = "OpenAI", **more: Any) -> Route:
    return Route(method="POST", path=path, run=run, summary=summary, tag=tag, body=body, **more)


def _skill(name: str, body: type, summary: str, **more: Any) -> Route:
    run, answer = partial(moondream.answer_skill, skill=name), moondream_answer.MoondreamAnswer
    return _post(f"/v1/{name}", run, body, summary, tag="Moondream", answer=answer, statuses=(200, 202), **more)


_MOONDREAM: Final = (
    _skill("query", moondream.QueryRequest, "Answer a question about an image.", streams=True),
    _skill("caption", moondream.CaptionRequest, "Describe an image.", streams=True),
    _skill("detect", moondream.DetectRequest, "Find every instance of an object in an image, as boxes."),
    _skill("point", moondream.PointRequest, "Point at every instance of an object in an image."),
    _skill("gaze", moondream.GazeRequest, "Find the place that a person looks at."),
    *(
        _post(
            f"/v1/{name}",
            partial(moondream.refuse_skill, skill=name),
            None,
            f"Refuse {name}: its model is not public.",
            tag="Moondream",
            statuses=(),
        )
        for name in REFUSED
    ),
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


def _audio(name: str, skill: Skill, run: Any, summary: str, **more: Any) -> Route:
    fields = audio_request.AUDIO_FIELDS[skill]
    return _post(
        f"/v1/audio/{name}", run, None, summary, form=fields, answer=dict[str, Any], statuses=(200, 202), **more
    )


def _rerank(path: str) -> Route:
    summary, answer = "Sort documents by how well they answer a query.", texts.RerankResponse
    return _post(path, texts.rerank, texts.RerankRequest, summary, tag="Reranking", answer=answer)


def _llama(path: str) -> Route:
    summary, answer = "Embed texts, as llama.cpp's server does.", list[texts.LlamaEmbedding]
    return _post(path, texts.embed_llama, texts.LlamaEmbeddingRequest, summary, tag="llama.cpp", answer=answer)


_OPENAI: Final = (
    _post(
        "/v1/chat/completions",
        chat.answer_chat,
        chat_request.ChatRequest,
        "Answer a conversation.",
        answer=chat.ChatCompletion,
        statuses=(200, 202),
        streams=True,
    ),
    _post("/v1/embeddings", texts.embed, texts.EmbeddingsRequest, "Embed texts.", answer=texts.EmbeddingsResponse),
    _audio("transcriptions", Skill.TRANSCRIBE, audio.transcribe, "Transcribe the speech in a recording.", streams=True),
    _audio("translations", Skill.TRANSLATE, audio.translate, "Translate the speech in a recording into English text."),
    *(_rerank(path) for path in ("/v1/rerank", "/v2/rerank", "/rerank", "/v1/reranking", "/reranking")),
    *(_llama(path) for path in ("/embedding", "/embeddings")),
)


def _stored(method: str, path: str, run: Any, summary: str, answer: Any, **more: Any) -> Route:
    return Route(method=method, path=path, run=run, summary=summary, tag="Batches", answer=answer, **more)


_LISTED: Final = ("limit", "after")
_BATCHES: Final = (
    _stored("POST", "/v1/files", file_routes.upload_file, "Store a file.", FileObject, form=("file", "purpose")),
    _stored("GET", "/v1/files", file_routes.list_files, "List the files.", file_routes.FileList, query=_LISTED),
    _stored("GET", "/v1/files/{id}", file_routes.show_file, "Show one file.", FileObject),
    _stored(
        "GET", "/v1/files/{id}/content", file_routes.read_file, "Read a file.", None, media_type="application/jsonl"
    ),
    _stored("DELETE", "/v1/files/{id}", file_routes.delete_file, "Delete a file.", file_routes.FileDeleted),
    _stored(
        "POST",
        "/v1/batches",
        batches.create_batch,
        "Run the lines of a file.",
        batches.Batch,
        body=batches.BatchRequest,
    ),
    _stored("GET", "/v1/batches", batches.list_batches, "List the batches.", batches.BatchList, query=_LISTED),
    _stored("GET", "/v1/batches/{id}", batches.show_batch, "Show one batch.", batches.Batch),
    _stored("POST", "/v1/batches/{id}/cancel", batches.cancel_batch, "Cancel a batch.", batches.Batch),
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
        path="/metrics",
        run=health.show_metrics,
        summary="Show the gateway's metrics to Prometheus.",
        tag="About",
        scope=Scope.METRICS,
        media_type="text/plain",
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

ROUTES: Final = (*_MOONDREAM, *_OPENAI, *_MODELS, *_JOBS, *_BATCHES, *_ABOUT, *PAGE_ROUTES)
