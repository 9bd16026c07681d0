"""The attributes of a job's spans, by OpenTelemetry's conventions for messaging and for generative AI.

Both conventions are still in development, so their names are written here and nowhere else. No attribute has a
caller's text, except those of `content`.
"""

import json
from typing import Any, Final

import msgspec

from stoop_schemas import names
from stoop_schemas.chat import Message
from stoop_schemas.job import Job
from stoop_schemas.result import Result
from stoop_schemas.skill import Skill
from stoop_worker.jobs.broker import Delivery

__all__ = ["Attributes", "answered", "content", "delivered", "operation"]

Attributes = dict[str, Any]

_OPERATIONS: Final = {Skill.CHAT: "chat", Skill.EMBED: "embeddings"}
_CONTENT_LIMIT: Final = 8 << 10  # bytes; the exporter's queue holds 2,048 spans
_MEDIA_TYPE_LIMIT: Final = 64  # characters
_SETTINGS: Final = ("temperature", "top_p", "top_k", "max_tokens", "seed", "presence_penalty", "frequency_penalty")


def delivered(delivery: Delivery, lane: str, attempt: int, worker: str) -> Attributes:
    """Return the attributes of one attempt to run a job."""
    return {
        "messaging.system": "redis",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": lane,
        "messaging.destination.partition.id": str(delivery.partition),
        "messaging.consumer.group.name": names.GROUP,
        "messaging.message.id": delivery.job_id,
        "stoop.attempt": attempt,
        "stoop.worker": worker,
    }


def operation(skill: str) -> str:
    """Return the conventions' name for the operation of a skill."""
    return _OPERATIONS.get(Skill(skill), "generate_content") if skill in set(Skill) else skill


def answered(job: Job, result: Result, model: str) -> Attributes:
    """Return the attributes of the engine's work for a job: the settings asked for, and the tokens used."""
    settings = {name: getattr(job.settings, name) for name in _SETTINGS}
    spent = result.metrics
    found = {
        "gen_ai.operation.name": operation(job.skill),
        "gen_ai.provider.name": "stoop",
        "gen_ai.request.model": job.model or model,
        "gen_ai.response.model": model,
        "gen_ai.response.id": job.id,
        "gen_ai.response.finish_reasons": [result.finish_reason] if result.finish_reason else None,
        "gen_ai.usage.input_tokens": spent.input_tokens,
        "gen_ai.usage.output_tokens": spent.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": spent.cached_tokens,
        **{f"gen_ai.request.{name}": value for name, value in settings.items()},
    }
    return {name: value for name, value in found.items() if value is not None}


def content(job: Job, result: Result) -> Attributes:
    """Return the caller's text and the answer, as JSON. Only if the operator has turned content on.

    Each attribute has at most 8 KiB; a longer one is cut. Files inside the job (`data:`) are left out.
    """
    question = job.question or job.object or job.query
    addresses = job.images if job.audio is None else [*job.images, job.audio]
    parts: list[Attributes] = [{"type": "uri", "uri": _without_file(address)} for address in addresses]
    if question:
        parts.append({"type": "text", "content": question})
    asked = [_shown(message) for message in job.messages or []] or [{"role": "user", "parts": parts}]
    output = {name: value for name, value in msgspec.to_builtins(result.output).items() if value is not None}
    answer = [{"role": "assistant", "parts": [{"type": "text", "content": json.dumps(output, ensure_ascii=False)}]}]
    return {
        "gen_ai.input.messages": _cut(json.dumps(asked, ensure_ascii=False)),
        "gen_ai.output.messages": _cut(json.dumps(answer, ensure_ascii=False)),
    }


def _shown(message: Message) -> Attributes:
    shown: Attributes = msgspec.to_builtins(message)
    parts = [] if isinstance(message.content, str) else shown["content"]
    for part in parts:
        if "image_url" in part:
            part["image_url"]["url"] = _without_file(part["image_url"]["url"])
    return shown


def _without_file(address: str) -> str:
    """Return an address; of a `data:` address, which is the file itself, only the type and the size."""
    if not address.startswith("data:"):
        return address
    media_type = address.partition(",")[0].partition(";")[0][:_MEDIA_TYPE_LIMIT]
    return f"{media_type} ({len(address)} characters)"


def _cut(text: str) -> str:
    packed = text.encode()
    if len(packed) <= _CONTENT_LIMIT:
        return text
    note = f"… (cut, of {len(packed)} bytes)"
    return packed[: _CONTENT_LIMIT - len(note.encode())].decode(errors="ignore") + note
