"""A caller's arguments to a checked `Job`, and a `Result` to the shapes of Moondream's own client."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

import msgspec

from producer.errors import InvalidJob
from schemas import names
from schemas.allowed import AllowedBuckets
from schemas.failure import Failure, FailureCode, Rejected
from schemas.job import Job, check
from schemas.result import Result
from schemas.skill import Settings

__all__ = ["answer", "build_job", "checked", "within"]


def build_job(skill: str, *, settings: Mapping[str, Any] | None = None, **fields: Any) -> Job:
    """Make a job with a fresh id of the fields given that are not None; raise `InvalidJob` naming what is wrong.

    `settings` has the fields of `schemas.skill.Settings`, no others; `fields` those of `schemas.job.Job`.
    """
    _refuse_unknown("job", fields, Job.__struct_fields__)
    _refuse_unknown("settings", settings or {}, Settings.__struct_fields__)
    given = {"id": names.new_id(), **{name: value for name, value in fields.items() if value is not None}}
    given_settings = {name: value for name, value in (settings or {}).items() if value is not None}
    try:
        return checked(msgspec.convert({**given, "skill": skill, "settings": given_settings}, Job))
    except msgspec.ValidationError as error:
        raise _invalid(f"not a job: {error}") from error


def checked(job: Job) -> Job:
    """Return the job if it keeps the contract; raise `InvalidJob` if not."""
    try:
        return check(job)
    except Rejected as rejected:
        raise InvalidJob(rejected.failure) from rejected


def within(allowed: AllowedBuckets, job: Job) -> Job:
    """Return the job if its image lies where the job's tenant may read; raise `InvalidJob` (image_forbidden) if not."""
    if job.image is None or not job.image.startswith("s3://"):
        return job
    path = job.image.removeprefix("s3://").partition("?versionId=")[0]
    if not allowed.permits(path, job.tenant):
        message = "the image's bucket or prefix is not allowed for this job's tenant: see STOOP_ALLOWED_BUCKETS"
        raise InvalidJob(Failure.of(FailureCode.IMAGE_FORBIDDEN, message))
    return job


def answer(result: Result) -> dict[str, Any]:
    """Return the output in Moondream's shape, with no other fields than those of the result's skill.

    {"answer": str[, "reasoning": {"text", "grounding"}]} | {"caption": str} | {"objects": [...]} | {"points": [...]}
    """
    answer: dict[str, Any] = msgspec.to_builtins(result.output)
    return answer


def _refuse_unknown(where: str, given: Mapping[str, Any], known: tuple[str, ...]) -> None:
    unknown = [name for name in given if name not in known]
    if not unknown:
        return
    near = get_close_matches(unknown[0], known, n=1)
    meant = f" (did you mean {near[0]!r}?)" if near else ""
    raise _invalid(f"unknown {where}: {', '.join(map(repr, unknown))}{meant}; known are {', '.join(known)}")


def _invalid(message: str) -> InvalidJob:
    return InvalidJob(Failure.of(FailureCode.INVALID_ARGUMENT, message))
