"""Converts a caller's arguments to a checked `Job`, and a `Result` to the shapes of Moondream's own client."""

import contextlib
from collections.abc import Mapping
from typing import Any

import msgspec

from stoop.client.vectors import read_vectors
from stoop.errors import InvalidJob
from stoop_schemas import chat_images, names
from stoop_schemas.address import parse_object
from stoop_schemas.allowed import AllowedBuckets
from stoop_schemas.failure import Failure, FailureCode, Rejected
from stoop_schemas.job import Job, check
from stoop_schemas.result import Result
from stoop_schemas.skills import skills
from stoop_schemas.unknown import meant, refuse_unknown_fields, refuse_unknown_settings

__all__ = ["answer", "build_job", "checked", "sized", "within"]


def build_job(skill: str, *, settings: Mapping[str, Any] | None = None, **fields: Any) -> Job:
    """Make a job with a fresh id from the fields that are not None; raise `InvalidJob`, which names the fault.

    `settings` has the fields of `stoop_schemas.skill.Settings`, no others; `fields` those of `stoop_schemas.job.Job`.
    """
    try:
        refuse_unknown_fields(fields)
        refuse_unknown_settings(settings or {})
    except Rejected as rejected:
        raise InvalidJob.of(rejected) from None
    given = {"id": names.new_id(), **{name: value for name, value in fields.items() if value is not None}}
    given_settings = {name: value for name, value in (settings or {}).items() if value is not None}
    try:
        return checked(msgspec.convert({**given, "skill": skill, "settings": given_settings}, Job))
    except msgspec.ValidationError as error:
        if str(error).endswith("`$.skill`"):
            raise _invalid(
                f"unknown skill {skill!r}{meant(skill, tuple(skills()))}; known are {', '.join(skills())}"
            ) from error
        raise _invalid(f"not a job: {error}") from error


def checked(job: Job) -> Job:
    """Return the job if it keeps the contract; raise `InvalidJob` if not."""
    try:
        return check(job)
    except Rejected as rejected:
        raise InvalidJob.of(rejected) from rejected


def sized(settings: Mapping[str, Any] | None, messages: Any) -> Mapping[str, Any]:
    """Do as `chat_images.sized` does; raises `InvalidJob`."""
    try:
        return chat_images.sized(settings, messages)
    except Rejected as rejected:
        raise InvalidJob.of(rejected) from None


def within(allowed: AllowedBuckets, job: Job) -> Job:
    """Return the job if its tenant may read its images and its recording.

    Raises `InvalidJob` (image_forbidden, audio_forbidden) if not.
    """
    images = "messages" if job.image is None else "image"
    wanted = [(image, "image", images, FailureCode.IMAGE_FORBIDDEN) for image in job.images]
    if job.audio is not None:
        wanted.append((job.audio, "audio", "audio", FailureCode.AUDIO_FORBIDDEN))
    for address, noun, field, code in wanted:
        if address.startswith("s3://") and not allowed.permits(_path(address), job.tenant):
            message = f"the {noun}'s bucket or prefix is not allowed for this job's tenant: see STOOP_ALLOWED_BUCKETS"
            raise InvalidJob(Failure.of(code, message), field)
    return job


def answer(result: Result) -> dict[str, Any]:
    """Return the output in Moondream's shape, with no other fields than those of the result's skill.

    {"answer": str[, "reasoning": {"text", "grounding"}]} | {"caption": str} | {"objects": [...]} | {"points": [...]} |
    {"message": {"role": "assistant", "content": str}} | {"embeddings": [[float]][, "sparse",
    "colbert"]} | {"scores": [float]} |
    {"transcript": {"text", "language", "duration", "segments"[, "words"]}}
    """
    return read_vectors(msgspec.to_builtins(result.output))


def _path(address: str) -> str:
    with contextlib.suppress(ValueError):  # the workers report a bad address
        return parse_object(address).path
    return address.removeprefix("s3://")


def _invalid(message: str) -> InvalidJob:
    return InvalidJob(Failure.of(FailureCode.INVALID_ARGUMENT, message))
