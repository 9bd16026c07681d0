"""One unit of work as the producer sees it."""

import re
from typing import Any, Final

import msgspec

from schemas.failure import FailureCode, Rejected
from schemas.skill import CaptionLength, Settings, Skill, SpatialRef

__all__ = ["ID_LIMIT", "METADATA_LIMIT", "TEXT_LIMIT", "Job", "check"]

METADATA_LIMIT: Final = 1024
"""Most bytes of a job's metadata, as JSON."""

TEXT_LIMIT: Final = 8192
"""Most characters of a question or an object name."""

ID_LIMIT: Final = 128
"""Most characters of an id, a custom id, an idempotency key, a lane or a tenant."""

IMAGE_LIMIT: Final = 1 << 20
"""Most characters of an image address; a larger image belongs in the object store."""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]*")
_IMAGE_SCHEMES: Final = ("s3://", "data:image/", "https://")


class Job(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A skill to run on an image; flat, so that a line of Moondream's batch files is one too.

    `image` is `s3://bucket/key[?versionId=...]`, `data:image/...;base64,...`, `https://...` (where the worker
    allows it) or absent for a query on text alone. `deadline` is in Unix milliseconds. `custom_id` and
    `metadata` (at most 1 KiB) come back untouched in the result.
    """

    id: str
    skill: Skill
    v: int = 1
    custom_id: str | None = None
    image: str | None = None
    question: str | None = None
    object: str | None = None
    length: CaptionLength = CaptionLength.NORMAL
    reasoning: bool = False
    spatial_refs: list[SpatialRef] | None = None
    settings: Settings = Settings()
    stream: bool = False
    lane: str = "interactive"
    deadline: int | None = None
    max_attempts: int | None = None
    idempotency_key: str | None = None
    tenant: str | None = None
    metadata: dict[str, Any] | None = None
    traceparent: str | None = None


def check(job: Job) -> Job:
    """Return the job if every field is in its range; raise `Rejected` with what to mend if not."""
    _check_required(job)
    _check_names(job)
    _check_texts(job)
    _check_settings(job.settings)
    _check_spatial_refs(job)
    _check_limits(job)
    return job


def _check_required(job: Job) -> None:
    if job.v != 1:
        raise Rejected(FailureCode.MALFORMED, f"version {job.v} is not known: send v 1")
    if job.skill is Skill.QUERY and not job.question:
        raise Rejected(FailureCode.MALFORMED, "a query needs a question")
    if job.skill in (Skill.DETECT, Skill.POINT) and not job.object:
        raise Rejected(FailureCode.MALFORMED, f"{job.skill} needs an object to look for")
    if job.image is None and job.skill is not Skill.QUERY:
        raise Rejected(FailureCode.MALFORMED, f"{job.skill} needs an image")


def _check_names(job: Job) -> None:
    named = {"id": job.id, "lane": job.lane, "tenant": job.tenant}
    for field, value in named.items():
        if value is not None and (len(value) > ID_LIMIT or not _NAME.fullmatch(value)):
            raise _invalid(
                f"{field} must be 1 to {ID_LIMIT} characters of A-Z a-z 0-9 . _ : - and start with A-Z a-z 0-9"
            )
    for field, value in {"custom_id": job.custom_id, "idempotency_key": job.idempotency_key}.items():
        if value is not None and not 1 <= len(value) <= ID_LIMIT:
            raise _invalid(f"{field} must have 1 to {ID_LIMIT} characters")


def _check_texts(job: Job) -> None:
    for field, text in {"question": job.question, "object": job.object}.items():
        if text is not None and len(text) > TEXT_LIMIT:
            raise _invalid(f"{field} has {len(text)} characters: at most {TEXT_LIMIT}")
    if job.image is None:
        return
    if not job.image.startswith(_IMAGE_SCHEMES):
        raise _invalid("image must be an s3://bucket/key, data:image/... or https:// address")
    if len(job.image) > IMAGE_LIMIT:
        raise Rejected(
            FailureCode.IMAGE_TOO_LARGE,
            f"the image address has {len(job.image)} characters: at most {IMAGE_LIMIT}; use the object store",
        )


def _check_settings(settings: Settings) -> None:
    ranges: dict[str, tuple[float | None, float, float]] = {
        "temperature": (settings.temperature, 0.0, 10.0),
        "top_p": (settings.top_p, 0.0, 1.0),
        "max_tokens": (settings.max_tokens, 1, 1 << 20),
        "max_objects": (settings.max_objects, 1, 1 << 16),
        "seed": (settings.seed, 0, (1 << 63) - 1),
    }
    for field, (value, low, high) in ranges.items():
        if value is not None and not low <= value <= high:
            raise _invalid(f"settings.{field} is {value}: it must be from {low} to {high}")


def _check_spatial_refs(job: Job) -> None:
    if not job.spatial_refs:
        return
    if job.skill is not Skill.QUERY:
        raise _invalid("spatial_refs go with a query")
    if job.image is None:
        raise _invalid("spatial_refs need an image")
    if any(len(ref) not in (2, 4) for ref in job.spatial_refs):
        raise _invalid("each of spatial_refs is a point [x, y] or a box [x_min, y_min, x_max, y_max]")
    if any(not 0.0 <= value <= 1.0 for ref in job.spatial_refs for value in ref):
        raise _invalid("spatial_refs are fractions of the image, from 0 to 1")
    if any(len(ref) == 4 and (ref[0] > ref[2] or ref[1] > ref[3]) for ref in job.spatial_refs):
        raise _invalid("a box in spatial_refs is [x_min, y_min, x_max, y_max]")


def _check_limits(job: Job) -> None:
    if job.deadline is not None and job.deadline <= 0:
        raise _invalid("deadline is a time in Unix milliseconds")
    if job.max_attempts is not None and not 1 <= job.max_attempts <= 100:
        raise _invalid("max_attempts must be from 1 to 100")
    if job.metadata is not None and len(msgspec.json.encode(job.metadata)) > METADATA_LIMIT:
        raise _invalid(f"metadata is over {METADATA_LIMIT} bytes as JSON")


def _invalid(message: str) -> Rejected:
    return Rejected(FailureCode.INVALID_ARGUMENT, message)
