"""OpenAI's and others' routes for skills that no model here has yet. They read and check a request as they will when a
model comes, and answer `model_not_found` until then.
"""

from typing import Any, Final, Literal

import msgspec
from starlette.datastructures import FormData, UploadFile
from starlette.responses import Response

from stoop.gateway.body import convert_body, read_json
from stoop.gateway.call import Call
from stoop.gateway.errors import ApiError
from stoop.gateway.forms import read_form

__all__ = [
    "AUDIO_FIELDS",
    "EmbeddingsRequest",
    "LlamaEmbeddingRequest",
    "RerankRequest",
    "embed",
    "embed_llama",
    "rerank",
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
_MOST_INPUTS: Final = 2048


class EmbeddingsRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Texts to embed. Token ids are refused, because they would be those of another model's tokenizer."""

    model: str
    input: str | list[str | int | list[int]]
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: int | None = None


class LlamaEmbeddingRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Texts to embed, as llama.cpp's server takes them."""

    content: str | list[str]
    model: str | None = None


class RerankRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Documents to sort by how well they answer a query."""

    query: str
    documents: list[str | dict[str, Any]]
    model: str | None = None
    top_n: int | None = None
    return_documents: bool | None = None


class _AudioForm(msgspec.Struct, frozen=True, kw_only=True):
    model: str
    language: str | None = None
    prompt: str | None = None
    response_format: Literal["json", "text", "srt", "verbose_json", "vtt"] = "json"
    temperature: float = 0.0


async def embed(call: Call) -> Response:
    """Answer `POST /v1/embeddings`."""
    body = await read_json(call, EmbeddingsRequest)
    inputs = [body.input] if isinstance(body.input, str) else body.input
    if any(not isinstance(each, str) for each in inputs):
        message = (
            "token ids are of another model's tokenizer: send text; in LangChain, check_embedding_ctx_length=False"
        )
        raise ApiError(400, "unsupported_value", message, param="input")
    if not inputs or not all(inputs) or len(inputs) > _MOST_INPUTS:
        raise ApiError(400, "invalid_value", f"input must be 1 to {_MOST_INPUTS} texts, none empty", param="input")
    raise await _unserved(call, body.model, "embeddings")


async def embed_llama(call: Call) -> Response:
    """Answer llama.cpp's `POST /embedding` and `POST /embeddings`."""
    body = await read_json(call, LlamaEmbeddingRequest)
    raise await _unserved(call, body.model, "embeddings")


async def rerank(call: Call) -> Response:
    """Answer `POST /v1/rerank` and its other names."""
    body = await read_json(call, RerankRequest)
    if not body.documents:
        raise ApiError(400, "invalid_value", "documents must not be empty", param="documents")
    raise await _unserved(call, body.model, "reranking")


async def transcribe(call: Call) -> Response:
    """Answer `POST /v1/audio/transcriptions`."""
    raise await _unserved(call, await _audio_model(call), "transcriptions")


async def translate(call: Call) -> Response:
    """Answer `POST /v1/audio/translations`."""
    raise await _unserved(call, await _audio_model(call), "translations")


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


async def _unserved(call: Call, model: str | None, what: str) -> ApiError:
    if model is not None:
        await call.gateway.models.resolve(model)  # which may not know the model at all
    return ApiError(404, "model_not_found", f"no worker serves a model for {what}", param="model")
