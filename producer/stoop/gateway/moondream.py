"""Moondream's own routes: query, caption, detect, point and gaze, plain and streamed."""

from collections.abc import Iterable
from typing import Any, Final

import msgspec
from starlette.responses import Response

from stoop.client.build_job import answer
from stoop.gateway.answer import answer_job
from stoop.gateway.body import read_json
from stoop.gateway.call import Call
from stoop.gateway.images import image_of
from stoop.gateway.pieces import Piece
from stoop.gateway.stream import stream_job
from stoop.gateway.submission import Ask, prepare
from stoop_schemas.response_format import ResponseFormat
from stoop_schemas.result import Result
from stoop_schemas.skill import CaptionLength, SpatialRef

__all__ = [
    "BODIES",
    "CaptionRequest",
    "DetectRequest",
    "GazeRequest",
    "MoondreamAnswer",
    "PointRequest",
    "QueryRequest",
    "Sampling",
    "SkillRequest",
    "answer_skill",
    "metrics_of",
    "skill_ask",
    "whole_answer",
]


class Sampling(msgspec.Struct, frozen=True):
    """Sampling settings; absent ones are the worker's. `variant` is Moondream's word for `adapter`."""

    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    max_objects: int | None = None
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    response_format: ResponseFormat | None = None
    regex: str | None = None
    adapter: str | None = None
    variant: str | None = None

    def values(self) -> dict[str, Any]:
        """Return them as the settings of a job."""
        given = msgspec.structs.asdict(self)
        variant = given.pop("variant")
        return {**given, "adapter": self.adapter or variant}


class SkillRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Fields of every skill. `image_url` is base64, `data:image/...;base64,...`, `s3://bucket/key` or `https://...`.

    `variant` is the id of an adapter, as in the settings. `lane` and `deadline` (Unix milliseconds) are Stoop's own.
    """

    image_url: str | None = None
    settings: Sampling | None = None
    model: str | None = None
    variant: str | None = None
    lane: str | None = None
    deadline: int | None = None


class QueryRequest(SkillRequest, frozen=True, kw_only=True):
    """A question, about an image or about nothing but text."""

    question: str
    stream: bool | None = None
    reasoning: bool | None = None
    spatial_refs: list[SpatialRef] | None = None


class CaptionRequest(SkillRequest, frozen=True, kw_only=True):
    """An image to describe."""

    length: CaptionLength | None = None
    stream: bool | None = None


class DetectRequest(SkillRequest, frozen=True, kw_only=True):
    """An object to find in an image, as boxes."""

    object: str


class PointRequest(SkillRequest, frozen=True, kw_only=True):
    """An object to point at in an image; the object "gaze" with one place in `spatial_refs` is a gaze."""

    object: str
    spatial_refs: list[SpatialRef] | None = None


class GazeRequest(SkillRequest, frozen=True, kw_only=True):
    """The place (x, y) of a person's eye in an image, as fractions of its width and height."""

    eye: tuple[float, float]


class MoondreamAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer of a skill: one of `answer`, `caption`, `objects`, `points` and `gaze`.

    `gaze` is null if the person looks at nothing in the image.
    """

    request_id: str
    job_id: str
    finish_reason: str
    metrics: dict[str, float]
    answer: str | None = None
    caption: str | None = None
    objects: list[dict[str, float]] | None = None
    points: list[dict[str, float]] | None = None
    gaze: dict[str, float] | None = None
    reasoning: dict[str, Any] | None = None


BODIES: Final[dict[str, type[SkillRequest]]] = {
    "query": QueryRequest,
    "caption": CaptionRequest,
    "detect": DetectRequest,
    "point": PointRequest,
    "gaze": GazeRequest,
}
_GAZE: Final = "gaze"
_FIELDS: Final = ("question", "object", "length", "reasoning", "spatial_refs", "deadline", "stream")


async def answer_skill(call: Call, skill: str) -> Response:
    """Answer `POST /v1/<skill>`."""
    job = await prepare(call, await skill_ask(skill, await read_json(call, BODIES[skill])))
    if job.stream:
        return await stream_job(call, job, _Frames(call))
    return await answer_job(call, job, lambda result: whole_answer(call.request_id, result, asked=skill))


async def skill_ask(skill: str, body: SkillRequest) -> Ask:
    """Return the job that a body asks for. Raises an `ApiError` (400)."""
    fields = {name: getattr(body, name, None) for name in _FIELDS}
    if isinstance(body, GazeRequest):
        fields["spatial_refs"] = [body.eye]
    elif isinstance(body, PointRequest) and body.object == _GAZE and body.spatial_refs:
        skill, fields["object"] = _GAZE, None
    settings = body.settings.values() if body.settings else {}
    return Ask(
        skill,
        await image_of(body.image_url),
        settings={**settings, "adapter": settings.get("adapter") or body.variant},
        model=body.model,
        lane=body.lane,
        fields=fields,
    )


def metrics_of(result: Result) -> dict[str, float]:
    """Return the cost of the job: tokens, and times in milliseconds."""
    return {name: getattr(result.metrics, name) for name in result.metrics.__struct_fields__}


def whole_answer(request_id: str, result: Result, *, asked: str = "") -> dict[str, Any]:
    """Return the answer of a completed job in Moondream's shape; a gaze as points if `point` was asked."""
    found = answer(result)
    if asked == "point" and "gaze" in found:
        found = {"points": [found["gaze"]] if found["gaze"] else []}
    return {
        "request_id": request_id,
        "job_id": result.id,
        **found,
        "finish_reason": result.finish_reason or "stop",
        "metrics": metrics_of(result),
    }


class _Frames:
    """Pieces as `chunk`, and the whole answer with the last event."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._index = 0

    def opening(self) -> Iterable[str]:
        return ()

    def piece(self, piece: Piece) -> Iterable[str]:
        if piece.kind == "reasoning":
            yield _json({"reasoning_chunk": piece.text})
            return
        yield _json({"chunk": piece.text, "completed": False, "token_index": self._index})
        self._index += 1

    def ending(self, result: Result) -> Iterable[str]:
        yield _json({"chunk": "", "completed": True, **whole_answer(self._call.request_id, result)})


def _json(value: dict[str, Any]) -> str:
    return msgspec.json.encode(value).decode()
