"""The job of a request to `LocalEngine`, whose image and recording are passed beside it."""

from collections.abc import Mapping
from typing import Any

import msgspec

from stoop_schemas import names
from stoop_schemas.chat_images import image_sources, sized, with_addresses
from stoop_schemas.failure import FailureCode, Rejected
from stoop_schemas.job import Job, check
from stoop_schemas.unknown import refuse_unknown_settings

__all__ = ["local_job"]

_IMAGE_HERE = "data:image/"  # stands in a job for an image that is passed beside it
_SOUND_HERE = "data:audio/"


def local_job(skill: str, image: object, settings: Mapping[str, Any] | None, asked: Mapping[str, Any]) -> Job:
    """Return a checked job with placeholders for the image, the images of messages and the recording.

    Raises `Rejected`.
    """
    given = {name: value for name, value in asked.items() if value is not None}
    refuse_unknown_settings(settings or {})
    if image is not None:
        given["image"] = _IMAGE_HERE
    if "audio" in given:
        given["audio"] = _SOUND_HERE
    if "messages" in given:
        settings = sized(settings, given["messages"])
        given["messages"] = with_addresses(given["messages"], [_IMAGE_HERE] * len(image_sources(given["messages"])))
    try:
        job = msgspec.convert({"id": names.new_id(), "skill": skill, "settings": settings or {}, **given}, Job)
    except msgspec.ValidationError as error:
        raise Rejected(FailureCode.INVALID_ARGUMENT, str(error)) from error
    return check(job)
