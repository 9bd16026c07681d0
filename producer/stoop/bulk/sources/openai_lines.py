"""OpenAI's batch lines of chats."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from stoop.bulk.row import Row
from stoop.bulk.sources.source import image_at
from stoop.foreign_parameters import refusal_of
from stoop_schemas.chat_images import sized
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
    "top_k": "top_k",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
    "response_format": "response_format",
    "regex": "regex",
    "min_pixels": "min_pixels",
    "max_pixels": "max_pixels",
}
_ROLES: Final = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}


def is_line(line: Mapping[str, Any]) -> bool:
    """Return whether this is an OpenAI line, which has its request in `body`."""
    return "body" in line


def read_line(name: str, line: Mapping[str, Any], folder: Path) -> Row:
    """Make a row of `{"custom_id", "method", "url", "body": {"model", "messages"}}`.

    `model` is ignored, because the workers choose theirs. Raises `Rejected` for another URL, and for parameters that
    Stoop does not have, such as tools.
    """
    body = line["body"]
    if not isinstance(body, dict) or not isinstance(body.get("messages"), list):
        raise _malformed("body.messages must be a list")
    if line.get("url", _URL) != _URL:
        raise _malformed(f"url must be {_URL}")
    refusal = refusal_of(body)
    if refusal is not None:
        raise Rejected(FailureCode.INVALID_ARGUMENT, refusal[1])
    fields: dict[str, Any] = {"messages": [_message(message, folder) for message in body["messages"]]}
    if line.get("custom_id") is not None:
        fields["custom_id"] = str(line["custom_id"])
    given = {ours: body[theirs] for theirs, ours in _SETTINGS.items() if body.get(theirs) is not None}
    settings = dict(sized(given, body["messages"]))
    stop = body.get("stop")
    if stop is not None:
        settings["stop"] = [stop] if isinstance(stop, str) else stop
    return Row(name, skill=Skill.CHAT.value, fields=fields, settings=settings)


def _message(message: Any, folder: Path) -> dict[str, Any]:
    role = message.get("role") if isinstance(message, dict) else None
    if role not in _ROLES:
        raise Rejected(FailureCode.INVALID_ARGUMENT, f"message roles must be {', '.join(_ROLES)}")
    if message.get("tool_calls") or message.get("function_call"):
        raise Rejected(FailureCode.INVALID_ARGUMENT, "the models call no tools, so they take no message that calls one")
    content = message.get("content")
    if not isinstance(content, str):
        content = [_part(part, folder) for part in (content if isinstance(content, list) else [content])]
    return {"role": _ROLES[role], "content": content}


def _part(part: Any, folder: Path) -> dict[str, Any]:
    match part:
        case {"type": "text" | "input_text", "text": str(text)}:
            return {"type": "text", "text": text}
        case {"type": "image_url", "image_url": {"url": str(url)} | str(url)}:
            return {"type": "image_url", "image_url": {"url": image_at(url, folder)}}
    raise _malformed("content must be text, or a list of text and image_url parts")


def _malformed(message: str) -> Rejected:
    return Rejected(FailureCode.MALFORMED, message)
