"""OpenAI's audio routes, for skills that no model here has yet. They read and check a request as they will when a model
comes, and answer `model_not_found` until then.
"""

from typing import Final, Literal

import msgspec
from starlette.datastructures import FormData, UploadFile
from starlette.responses import Response

from stoop.gateway.body import convert_body
from stoop.gateway.call import Call
from stoop.gateway.errors import ApiError
from stoop.gateway.forms import read_form

__all__ = [
    "AUDIO_FIELDS",
    "transcribe",
    "translate",
]

AUDIO_FIELDS: Final = (
    "file",
    "model",
    "language",
    "prompt",
    "response_format",
    "temperature",
    "timestamp_granularities[]",
)


class _AudioForm(msgspec.Struct, frozen=True, kw_only=True):
    model: str
    language: str | None = None
    prompt: str | None = None
    response_format: Literal["json", "text", "srt", "verbose_json", "vtt"] = "json"
    temperature: float = 0.0


async def transcribe(call: Call) -> Response:
    """Answer `POST /v1/audio/transcriptions`."""
    raise await _unserved(call, "transcriptions")


async def translate(call: Call) -> Response:
    """Answer `POST /v1/audio/translations`."""
    raise await _unserved(call, "translations")


async def _audio_model(call: Call) -> str:
    form = await read_form(call, call.gateway.options.max_audio_bytes)
    try:
        body = _audio(form)
    finally:
        await form.close()
    return body.model


def _audio(form: FormData) -> _AudioForm:
    if not isinstance(form.get("file"), UploadFile):
        raise ApiError(400, "invalid_value", "file must be an audio file", param="file")
    fields = {name: value for name, value in form.items() if isinstance(value, str)}
    body = convert_body(fields, _AudioForm)
    if not 0 <= body.temperature <= 1:
        raise ApiError(400, "invalid_value", "temperature must be from 0 to 1", param="temperature")
    name = "timestamp_granularities[]"
    wanted = form.getlist(name)
    if any(each not in ("word", "segment") for each in wanted):
        raise ApiError(400, "invalid_value", "a granularity is word or segment", param=name)
    if wanted and body.response_format != "verbose_json":
        raise ApiError(400, "invalid_value", "granularities need response_format verbose_json", param=name)
    return body


async def _unserved(call: Call, purpose: str) -> ApiError:
    await call.gateway.models.resolve(await _audio_model(call))  # which may not know the model at all
    return ApiError(404, "model_not_found", f"no worker serves a model for {purpose}", param="model")
