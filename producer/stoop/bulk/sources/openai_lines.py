"""OpenAI's batch lines: a chat with one image becomes a query."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from stoop.bulk.row import Row
from stoop.bulk.sources.source import image_at
from stoop_schemas.failure import FailureCode, Rejected
from stoop_schemas.skill import Skill

__all__ = ["is_line", "read_line"]

_URL: Final = "/v1/chat/completions"
_SETTINGS: Final = {
    "temperature": "temperature",
    "top_p": "top_p",
    "max_tokens": "max_tokens",
    "max_completion_tokens": "max_tokens",
    "seed": "seed",
}
_SPOKEN: Final = ("system", "developer", "user")


def is_line(line: Mapping[str, Any]) -> bool:
    """Return whether this is an OpenAI line, which has its request in `body`."""
    return "body" in line


def read_line(name: str, line: Mapping[str, Any], folder: Path) -> Row:
    """Make a row of `{"custom_id", "method", "url", "body": {"model", "messages"}}`.

    The question is the text of all messages. `model` is ignored, because the workers choose theirs. Raises `Rejected`
    for requests that Stoop does not support: another URL, several images, assistant turns, tools, more than one choice.
    """
    body = line["body"]
    if not isinstance(body, dict) or not isinstance(body.get("messages"), list):
        raise _malformed("body.messages must be a list")
    if line.get("url", _URL) != _URL:
        raise _malformed(f"url must be {_URL}")
    if body.get("tools") or body.get("n", 1) != 1:
        raise Rejected(FailureCode.INVALID_ARGUMENT, "tools and n above 1 are not supported: leave them out")
    parts = list(_parts(body["messages"]))
    images = [part for kind, part in parts if kind == "image"]
    if len(images) > 1:
        raise Rejected(FailureCode.INVALID_ARGUMENT, f"the line has {len(images)} images: give one per line")
    fields = {"question": "\n".join(part for kind, part in parts if kind == "text")}
    if line.get("custom_id") is not None:
        fields["custom_id"] = str(line["custom_id"])
    settings = {ours: body[theirs] for theirs, ours in _SETTINGS.items() if body.get(theirs) is not None}
    image = image_at(images[0], folder) if images else None
    return Row(name, image=image, skill=Skill.QUERY.value, fields=fields, settings=settings)


def _parts(messages: list[Any]) -> Iterator[tuple[str, str]]:
    for message in messages:
        if not isinstance(message, dict) or message.get("role") not in _SPOKEN:
            raise Rejected(
                FailureCode.INVALID_ARGUMENT, f"message roles must be {', '.join(_SPOKEN)}: one turn per line"
            )
        content = message.get("content")
        for part in content if isinstance(content, list) else [{"type": "text", "text": content}]:
            yield _part(part)


def _part(part: Any) -> tuple[str, str]:
    match part:
        case {"type": "text" | "input_text", "text": str(text)}:
            return "text", text
        case {"type": "image_url", "image_url": {"url": str(url)} | str(url)}:
            return "image", url
    raise _malformed("content must be text, or a list of text and image_url parts")


def _malformed(message: str) -> Rejected:
    return Rejected(FailureCode.MALFORMED, message)
