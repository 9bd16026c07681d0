"""Vectors and scores of texts: OpenAI's embeddings, rerank in Cohere's form, and llama.cpp's embeddings."""

import math
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Final, Literal

import msgspec
from starlette.responses import Response

from stoop.client.vectors import read_vector
from stoop.gateway.answer import answer_jobs
from stoop.gateway.ask import Ask
from stoop.gateway.body import read_json
from stoop.gateway.call import Call
from stoop.gateway.errors import ApiError
from stoop.gateway.submission import prepare
from stoop_schemas.job import Job
from stoop_schemas.result import Result
from stoop_schemas.skill import Skill, VectorKind
from stoop_schemas.texts import TEXTS_LENGTH_LIMIT, TEXTS_LIMIT

__all__ = [
    "EmbeddingsRequest",
    "EmbeddingsResponse",
    "LlamaEmbedding",
    "LlamaEmbeddingRequest",
    "RerankRequest",
    "RerankResponse",
    "embed",
    "embed_llama",
    "rerank",
]

_MOST_TEXTS: Final = 2_048
"""Most texts of a request, as OpenAI's server takes them. A job takes fewer."""


class EmbeddingsRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Texts to embed. Token ids are refused, because they would be those of another model's tokenizer.

    Three fields are extensions. `kinds` are the kinds of vectors, dense alone by default. `prompt_name` chooses one of
    the model's prompts, which goes before each text. `truncate` cuts the end of a text that is too long.
    """

    model: str
    input: str | list[str | int | list[int]]
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: int | None = None
    kinds: list[VectorKind] | None = None
    prompt_name: str | None = None
    truncate: bool | None = None


class EmbeddingsResponse(msgspec.Struct, frozen=True, kw_only=True):
    """One vector for each text: numbers, or the base64 of little-endian float32 values.

    With `kinds`, each has `sparse` and `colbert` in the form of a job's output, and `embedding` only for dense vectors.
    """

    object: str
    data: list[dict[str, Any]]
    model: str
    usage: dict[str, int]


class LlamaEmbeddingRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Texts to embed, as llama.cpp's server takes them."""

    content: str | list[str]
    model: str | None = None


class LlamaEmbedding(msgspec.Struct, frozen=True, kw_only=True):
    """The vector of one text, as llama.cpp's server writes it."""

    index: int
    embedding: list[list[float]]


class RerankRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Documents to sort by how well they answer a query."""

    query: str
    documents: list[str | dict[str, Any]]
    model: str | None = None
    top_n: Annotated[int, msgspec.Meta(ge=1)] | None = None
    return_documents: bool | None = None


class RerankResponse(msgspec.Struct, frozen=True, kw_only=True):
    """The best documents, best first; `relevance_score` is from 0 to 1."""

    id: str
    model: str | None
    results: list[dict[str, Any]]
    usage: dict[str, int]
    meta: dict[str, Any]


async def embed(call: Call) -> Response:
    """Answer `POST /v1/embeddings`."""
    body = await read_json(call, EmbeddingsRequest)
    given = [body.input] if isinstance(body.input, str) else body.input
    texts = [text for text in given if isinstance(text, str)]
    if len(texts) < len(given):
        message = (
            "token ids are of another model's tokenizer: send text; in LangChain, check_embedding_ctx_length=False"
        )
        raise ApiError(400, "unsupported_value", message, param="input")
    fields = {"dimensions": body.dimensions, "kinds": body.kinds, "prompt_name": body.prompt_name}
    jobs = await _embed_jobs(call, body.model, texts, "input", **fields, truncate=bool(body.truncate))

    def write(results: Sequence[Result]) -> EmbeddingsResponse:
        found = [each for result in results for each in _kinds_of(result, packed=body.encoding_format == "base64")]
        data = [{"object": "embedding", "index": index, **each} for index, each in enumerate(found)]
        count = _tokens_of(results)
        usage = {"prompt_tokens": count, "total_tokens": count}
        return EmbeddingsResponse(object="list", data=data, model=body.model, usage=usage)

    return await answer_jobs(call, jobs, write)


async def embed_llama(call: Call) -> Response:
    """Answer llama.cpp's `POST /embedding` and `POST /embeddings`."""
    body = await read_json(call, LlamaEmbeddingRequest)
    texts = [body.content] if isinstance(body.content, str) else body.content
    jobs = await _embed_jobs(call, body.model, texts, "content")

    def write(results: Sequence[Result]) -> list[LlamaEmbedding]:
        vectors = (read_vector(vector) for result in results for vector in _vectors_of(result))
        return [LlamaEmbedding(index=index, embedding=[vector]) for index, vector in enumerate(vectors)]

    return await answer_jobs(call, jobs, write)


async def rerank(call: Call) -> Response:
    """Answer `POST /v1/rerank` and its other names."""
    body = await read_json(call, RerankRequest)
    documents = [each if isinstance(each, str) else each.get("text") for each in body.documents]
    texts = [text for text in documents if isinstance(text, str)]
    if len(texts) < len(documents):
        raise ApiError(400, "invalid_value", "a document is a text, or an object with a text", param="documents")
    _check_texts(texts, "documents")
    await call.gateway.models.check(body.model, Skill.RERANK, "reranking")
    fields = {"query": body.query, "truncate": True}
    # the query is part of every job
    asked = [{**fields, "documents": part} for part in _parts(texts)]
    jobs = await _prepare_all(call, [Ask(Skill.RERANK.value, model=body.model, fields=each) for each in asked])

    def write(results: Sequence[Result]) -> RerankResponse:
        scores = [score for result in results for score in (result.output and result.output.scores) or ()]
        ranked = sorted(enumerate(scores), key=lambda scored: -scored[1])[: body.top_n]
        usage = {"total_tokens": _tokens_of(results)}
        best = [
            {"index": index, "relevance_score": _share(score)}
            | ({"document": {"text": texts[index]}} if body.return_documents else {})
            for index, score in ranked
        ]
        return RerankResponse(id=results[0].id, model=body.model, results=best, usage=usage, meta={})

    return await answer_jobs(call, jobs, write)


async def _embed_jobs(call: Call, model: str | None, texts: list[str], param: str, **fields: Any) -> list[Job]:
    _check_texts(texts, param)
    await call.gateway.models.check(model, Skill.EMBED, "embeddings")
    asked = [{"input": part, **fields} for part in _parts(texts)]
    asks = [Ask(Skill.EMBED.value, model=model, fields=each, names={"input": param}) for each in asked]
    return await _prepare_all(call, asks)


async def _prepare_all(call: Call, asks: list[Ask]) -> list[Job]:
    return [await prepare(call, ask, part) for part, ask in enumerate(asks)]


def _check_texts(texts: list[str], param: str) -> None:
    if len(texts) > _MOST_TEXTS:
        message = f"{param} has {len(texts)} texts: send at most {_MOST_TEXTS} at once"
        raise ApiError(400, "invalid_value", message, param=param)
    if not all(texts) or not texts:
        raise ApiError(400, "invalid_value", f"{param} must be 1 to {_MOST_TEXTS} texts, none empty", param=param)


def _parts(texts: list[str]) -> Iterator[list[str]]:
    """Yield the texts in parts that each fit into a job, unless a text alone does not."""
    part: list[str] = []
    length = 0
    for text in texts:
        if part and (len(part) == TEXTS_LIMIT or length + len(text) > TEXTS_LENGTH_LIMIT):
            yield part
            part, length = [], 0
        part.append(text)
        length += len(text)
    yield part


def _tokens_of(results: Sequence[Result]) -> int:
    return sum(result.metrics.input_tokens for result in results)


def _vectors_of(result: Result) -> list[str]:
    return (result.output.embeddings if result.output else None) or []


def _share(score: float) -> float:
    """Return the logistic function of a score, without overflow."""
    return 1 / (1 + math.exp(-score)) if score > 0 else 1 - 1 / (1 + math.exp(score))


def _kinds_of(result: Result, *, packed: bool) -> list[dict[str, Any]]:
    """Return the vectors of each text by their kind."""
    output = msgspec.to_builtins(result.output)
    if not packed:
        output |= {"embeddings": [read_vector(vector) for vector in _vectors_of(result)]} if _vectors_of(result) else {}
    named = {"embedding": "embeddings", "sparse": "sparse", "colbert": "colbert"}
    kept = {name: output[field] for name, field in named.items() if field in output}
    return [dict(zip(kept, each, strict=True)) for each in zip(*kept.values(), strict=True)]
