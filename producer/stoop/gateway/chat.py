"""OpenAI's chat completions: the skill that the extension `skill` names; without it `query`, or `chat` if the model has
no `query`.
"""

import time
from collections.abc import Iterable
from typing import Any, Final

import msgspec
from starlette.responses import Response

from stoop.client.build_job import answer
from stoop.gateway.answer import answer_job
from stoop.gateway.ask import Ask
from stoop.gateway.body import read_json
from stoop.gateway.call import Call
from stoop.gateway.chat_request import ChatRequest, check_chat, conversation, one_question
from stoop.gateway.errors import ApiError
from stoop.gateway.images import image_of
from stoop.gateway.models import Models
from stoop.gateway.pieces import Piece
from stoop.gateway.stream import stream_job
from stoop.gateway.submission import prepare
from stoop_schemas.job import Job
from stoop_schemas.response_format import TextFormat
from stoop_schemas.result import Result
from stoop_schemas.skill import Settings, Skill
from stoop_schemas.skills import TEXT_OUTPUTS, spec_of

__all__ = ["ChatCompletion", "answer_chat", "chat_ask", "completion"]

_DONE: Final = "[DONE]"


class ChatCompletion(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of a chat; `choices` has one."""

    id: str
    object: str
    created: int
    model: str
    choices: list[dict[str, Any]]
    usage: dict[str, Any]
    system_fingerprint: str | None = None


async def answer_chat(call: Call) -> Response:
    """Answer `POST /v1/chat/completions`."""
    body = await read_json(call, ChatRequest)
    job = await prepare(call, await chat_ask(call.gateway.models, body))
    if job.stream:
        return await stream_job(call, job, _Frames(call, body, job))
    created = int(time.time())
    return await answer_job(call, job, lambda result: completion(body.model, created, result))


async def chat_ask(models: Models, body: ChatRequest) -> Ask:
    """Return the job that a body asks for. Raises an `ApiError` (400, 404)."""
    check_chat(body)
    if body.skill is None:
        served = await models.skills(body.model)
        if Skill.CHAT in served and Skill.QUERY not in served:
            return await _next_message(body)
    return await _one_answer(body)


async def _next_message(body: ChatRequest) -> Ask:
    if _reasons(body):
        raise ApiError(400, "unsupported_parameter", "this model has no switch for reasoning", param="reasoning")
    fields = {"messages": await conversation(body.messages), "stream": bool(body.stream), "deadline": body.deadline}
    settings, names = _settings(body), _names(body)
    return Ask(Skill.CHAT.value, model=body.model, lane=body.lane, settings=settings, fields=fields, names=names)


async def _one_answer(body: ChatRequest) -> Ask:
    question = one_question(body.messages)
    skill = body.skill or Skill.QUERY.value
    spec = spec_of(skill)
    asked = {
        "question": question.text,
        "object": body.object or question.text,
        "length": body.length,
        "reasoning": _reasons(body),
        "spatial_refs": body.spatial_refs,
    }
    return Ask(
        skill,
        await image_of(question.image, "messages"),
        model=body.model,
        lane=body.lane,
        settings={**_settings(body), "max_objects": body.max_objects},
        fields={
            **{name: value for name, value in asked.items() if spec.takes(name)},
            "stream": bool(body.stream),
            "deadline": body.deadline,
        },
        names=_names(body),
    )


def _settings(body: ChatRequest) -> dict[str, Any]:
    return {
        "temperature": body.temperature,
        "top_p": body.top_p,
        "top_k": body.top_k,
        "max_tokens": body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens,
        "seed": body.seed,
        "stop": [body.stop] if isinstance(body.stop, str) else body.stop or None,
        "presence_penalty": body.presence_penalty or None,
        "frequency_penalty": body.frequency_penalty or None,
        "response_format": None if isinstance(body.response_format, TextFormat) else body.response_format,
        "regex": body.regex,
        "min_pixels": body.min_pixels,
        "max_pixels": body.max_pixels,
    }


def _names(body: ChatRequest) -> dict[str, str]:
    """Return the names that a body has for the fields of a job."""
    asked = {"image": "messages", "question": "messages"} | ({} if body.object else {"object": "messages"})
    settings = {f"settings.{name}": name for name in Settings.__struct_fields__}
    if body.max_completion_tokens is not None:
        settings["settings.max_tokens"] = "max_completion_tokens"
    return settings | asked | {"settings.adapter": "model"}


def _reasons(body: ChatRequest) -> bool | None:
    """Return whether to reason; None lets the model decide."""
    if body.reasoning is not None or body.reasoning_effort is None:
        return body.reasoning
    return body.reasoning_effort != "none"


def completion(model: str, created: int, result: Result) -> ChatCompletion:
    """Return the answer of a completed job in OpenAI's shape."""
    output = answer(result)
    message: dict[str, Any] = {"role": "assistant", "content": _content(result), "refusal": None}
    if reasoning := output.get("reasoning"):
        message |= {"reasoning_content": reasoning["text"], "reasoning": reasoning}
    message |= {name: output[name] for name in ("objects", "points") if name in output}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": result.finish_reason or "stop"}
    return ChatCompletion(
        id=f"chatcmpl-{result.id}",
        object="chat.completion",
        created=created,
        model=model,
        choices=[choice],
        usage=_usage(result),
    )


def _content(result: Result) -> str:
    """Return the text of an answer; boxes and points as JSON."""
    text = result.output.text if result.output else None
    return msgspec.json.encode(answer(result)).decode() if text is None else text


def _usage(result: Result) -> dict[str, Any]:
    metrics = result.metrics
    return {
        "prompt_tokens": metrics.input_tokens,
        "completion_tokens": metrics.output_tokens,
        "total_tokens": metrics.input_tokens + metrics.output_tokens,
        "prompt_tokens_details": {"cached_tokens": metrics.cached_tokens},
    }


class _Frames:
    """Chunks of one completion, ended by `[DONE]`."""

    def __init__(self, call: Call, body: ChatRequest, job: Job) -> None:
        self._call = call
        self._wants_usage = bool(body.stream_options and body.stream_options.include_usage)
        self._is_text = spec_of(job.skill).output in TEXT_OUTPUTS
        self._head: dict[str, Any] = {
            "object": "chat.completion.chunk",
            "created": int(time.time()),
            "model": body.model,
            "system_fingerprint": None,
        }

    def opening(self) -> Iterable[str]:
        # with an idempotency key that was seen before it is an earlier job's id
        self._head = {"id": f"chatcmpl-{self._call.headers['x-stoop-job-id']}", **self._head}
        yield self._chunk({"role": "assistant", "content": ""})

    def piece(self, piece: Piece) -> Iterable[str]:
        yield self._chunk({"reasoning_content" if piece.kind == "reasoning" else "content": piece.text})

    def ending(self, result: Result) -> Iterable[str]:
        if not self._is_text:
            yield self._chunk({"content": _content(result)})
        yield self._chunk({}, result.finish_reason or "stop")
        if self._wants_usage:
            yield _json({**self._head, "choices": [], "usage": _usage(result)})
        yield _DONE

    def _chunk(self, delta: dict[str, Any], finish_reason: str | None = None) -> str:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        usage = {"usage": None} if self._wants_usage else {}
        return _json({**self._head, "choices": [choice], **usage})


def _json(value: dict[str, Any]) -> str:
    return msgspec.json.encode(value).decode()
