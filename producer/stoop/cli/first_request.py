"""The first request that a new user may send to a model: what it asks depends on the model's skills."""

import json
import shlex
from collections.abc import Collection
from typing import Any, NamedTuple

from stoop.demo.recordings import find_recordings
from stoop_schemas.skill import Skill

__all__ = ["FirstRequest", "first_request"]

_QUESTION = "How many shapes are there?"
_PLAIN_QUESTION = "What is a stoop?"
_TEXT = "There are two red circles."


class FirstRequest(NamedTuple):
    """The path, the rest of a curl command, and a call of OpenAI's client; None if that client cannot send it."""

    path: str
    fields: str
    call: str | None


def first_request(model: str, skills: Collection[str], image: str) -> FirstRequest:
    """Return a request that a model with these skills can answer; one about an image if the model has no skill yet."""
    if Skill.QUERY in skills or not skills:
        asked = {"image_url": image, "question": _QUESTION}
        shown = [{"type": "text", "text": _QUESTION}, {"type": "image_url", "image_url": {"url": image}}]
        return FirstRequest("/v1/query", _json(asked), _chat(model, shown))
    if Skill.CHAT in skills:
        body = {"model": model, "messages": [{"role": "user", "content": _PLAIN_QUESTION}]}
        return FirstRequest("/v1/chat/completions", _json(body), _chat(model, _PLAIN_QUESTION))
    if Skill.TRANSCRIBE in skills:
        file = str(find_recordings()[0].path)
        call = f"audio.transcriptions.create(model='{model}', file=open('{file}', 'rb')).text"
        return FirstRequest("/v1/audio/transcriptions", f"-F model={model} -F {shlex.quote(f'file=@{file}')}", call)
    if Skill.EMBED in skills:
        call = f"embeddings.create(model='{model}', input='{_TEXT}').data[0].embedding"
        return FirstRequest("/v1/embeddings", _json({"model": model, "input": [_TEXT]}), call)
    ranked = {"model": model, "query": _PLAIN_QUESTION, "documents": [_TEXT, "A stoop is a falcon's dive."]}
    return FirstRequest("/v1/rerank", _json(ranked), None)


def _json(body: dict[str, Any]) -> str:
    return f"-H 'Content-Type: application/json' -d {shlex.quote(json.dumps(body))}"


def _chat(model: str, content: Any) -> str:
    messages = [{"role": "user", "content": content}]
    return f"chat.completions.create(model='{model}', messages={messages}).choices[0].message.content"
