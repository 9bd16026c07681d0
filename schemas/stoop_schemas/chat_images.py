"""The images in a caller's messages, which may be paths, bytes or arrays until they have addresses."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = ["image_sources", "with_addresses"]


def image_sources(messages: Any) -> list[Any]:
    """Return the images of all messages, in their order. A value that is not a message has none; the check of the job
    names it.
    """
    if not isinstance(messages, Sequence) or isinstance(messages, str | bytes):
        return []
    return [
        _source(part)
        for message in messages
        if isinstance(message, Mapping)
        for part in _images(message.get("content"))
    ]


def with_addresses(messages: Any, addresses: Sequence[str]) -> Any:
    """Return the messages with each image replaced by its address; anything else stays as it is."""
    if not addresses:
        return messages
    left = iter(addresses)
    return [
        {**message, "content": _addressed(message["content"], left)} if _images_in(message) else message
        for message in messages
    ]


def _addressed(content: Any, addresses: Iterator[str]) -> Any:
    if not isinstance(content, list | tuple):
        return content
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
