"""The images in a caller's messages, which may be paths, bytes or arrays until they have addresses."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from stoop_schemas.failure import FailureCode, Rejected

__all__ = ["DETAILS", "image_sources", "sized", "with_addresses"]

DETAILS: Final = ("auto", "low", "high", "original")
"""The values of an image's `detail`; `low` makes images smaller, and the others change nothing."""

_LOW_PIXELS: Final = 512 * 512
"""The size to which OpenAI shrinks an image of low detail."""


def image_sources(messages: Any) -> list[Any]:
    """Return the images of all messages, in their order. A value that is not a message has none; the check of the job
    names it.
    """
    return [_source(part) for part in _parts(messages)]


def sized(settings: Mapping[str, Any] | None, messages: Any) -> Mapping[str, Any]:
    """Return the settings, with `max_pixels` if they have none and all images of the messages ask for low detail.

    Raises `Rejected` for a detail that does not exist.
    """
    given = settings or {}
    details = {_detail(part) for part in _parts(messages)}
    return {**given, "max_pixels": _LOW_PIXELS} if details == {"low"} and given.get("max_pixels") is None else given


def with_addresses(messages: Any, addresses: Sequence[str]) -> Any:
    """Return the messages with each image replaced by its address; anything else stays as it is."""
    if not addresses:
        return messages
    left = iter(addresses)
    return [
        {**message, "content": _addressed(message["content"], left)} if _images_in(message) else message
        for message in messages
    ]


def _parts(messages: Any) -> list[Any]:
    if not isinstance(messages, Sequence) or isinstance(messages, str | bytes):
        return []
    found = (_images(message.get("content")) for message in messages if isinstance(message, Mapping))
    return [part for parts in found for part in parts]


def _addressed(content: Sequence[Any], addresses: Iterator[str]) -> list[Any]:
    return [
        {"type": "image_url", "image_url": {"url": next(addresses)}} if _is_image(part) else part for part in content
    ]


def _images_in(message: Any) -> bool:
    return isinstance(message, Mapping) and bool(_images(message.get("content")))


def _images(content: Any) -> list[Any]:
    return [part for part in content if _is_image(part)] if isinstance(content, list | tuple) else []


def _is_image(part: Any) -> bool:
    return isinstance(part, Mapping) and part.get("type") == "image_url" and _source(part) is not None


def _source(part: Mapping[str, Any]) -> Any:
    given = part.get("image_url")
    return given.get("url") if isinstance(given, Mapping) else given  # the short form: the image itself


def _detail(part: Mapping[str, Any]) -> str | None:
    given = part["image_url"]
    detail = given.get("detail") if isinstance(given, Mapping) else None
    if detail is None or detail in DETAILS:
        return detail
    message = f"the detail of an image must be one of {', '.join(DETAILS)}"
    raise Rejected(FailureCode.INVALID_ARGUMENT, message, "messages")
