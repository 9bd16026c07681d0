"""Moondream's own routes: query, caption, detect, point and gaze, plain and streamed; and a refusal of segment."""

from typing import Any, Final, NoReturn

import msgspec
from starlette.responses import Response

from stoop.gateway.answer import answer_job
from stoop.gateway.ask import Ask, is_gaze
from stoop.gateway.body import read_json
from stoop.gateway.call import Call
from stoop.gateway.errors import ApiError
from stoop.gateway.images import image_of
from stoop.gateway.moondream_answer import Chunks, whole_answer
from stoop.gateway.stream import stream_job
from stoop.gateway.submission import prepare
from stoop_schemas.failure import FailureCode
from stoop_schemas.skill import CaptionLength, Settings, Skill, SpatialRef
from stoop_schemas.skills import REFUSED

__all__ = [
    "BODIES",
    "CaptionRequest",
    "DetectRequest",
    "GazeRequest",
    "PointRequest",
    "QueryRequest",
    "Sampling",
    "SkillRequest",
    "answer_skill",
    "refuse_skill",
    "skill_ask",
]


class Sampling(Settings, frozen=True, forbid_unknown_fields=True):
    """Sampling settings; absent ones are the worker's. `variant` is Moondream's word for `adapter`."""

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
    """A question, about an image or about text alone."""

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
    """An object to point at in an image, and the places that the request is about; the object "gaze" with one place is
    a gaze.
    """

    object: str
    spatial_refs: list[SpatialRef] | None = None


class GazeRequest(SkillRequest, frozen=True, kw_only=True):
    """The place (x, y) of a person's eye in an image, as fractions of its width and height."""

    eye: tuple[float, float]


BODIES: Final[dict[str, type[SkillRequest]]] = {
    "query": QueryRequest,
    "caption": CaptionRequest,
    "detect": DetectRequest,
    "point": PointRequest,
    "gaze": GazeRequest,
}
_FIELDS: Final = ("question", "object", "length", "reasoning", "spatial_refs", "deadline", "stream")


async def answer_skill(call: Call, skill: str) -> Response:
    """Answer `POST /v1/<skill>`."""
    job = await prepare(call, await skill_ask(skill, await read_json(call, BODIES[skill])))
    if job.stream:
        return await stream_job(call, job, Chunks(call.request_id))
    return await answer_job(call, job, lambda result: whole_answer(call.request_id, result, asked=skill))


async def refuse_skill(call: Call, skill: str) -> NoReturn:
    """Refuse `POST /v1/<skill>` with the queue's reason. Raises an `ApiError` (400)."""
    raise ApiError(400, FailureCode.UNSUPPORTED_SKILL, REFUSED[skill])


async def skill_ask(skill: str, body: SkillRequest) -> Ask:
    """Return the job that a body asks for. Raises an `ApiError` (400)."""
    fields = {name: getattr(body, name, None) for name in _FIELDS}
    names = {"image": "image_url"}
    if isinstance(body, GazeRequest):
        fields["spatial_refs"] = [body.eye]
        names["spatial_refs"] = "eye"
    elif is_gaze(skill, fields["object"], fields["spatial_refs"]):
        skill, fields["object"] = Skill.GAZE, None
    settings = body.settings.values() if body.settings else {}
    return Ask(
        skill,
        await image_of(body.image_url),
        settings={**settings, "adapter": settings.get("adapter") or body.variant},
        model=body.model,
        lane=body.lane,
        fields=fields,
        names=names,
    )
