"""The client for asyncio: jobs with their images, and Moondream's own methods on top."""

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import msgspec

from stoop.client.build_job import answer, build_job, checked, sized
from stoop.client.job_client import JobClient
from stoop.client.segment_stream import SegmentStream
from stoop.client.speech_methods import SpeechMethods
from stoop.client.text_stream import TextStream
from stoop.client.transport import Transport
from stoop.images.source import EncodedImage
from stoop.images.upload import ImageStore
from stoop_schemas.chat_images import image_sources, with_addresses
from stoop_schemas.job import Job
from stoop_schemas.skills import TEXT_OUTPUTS, spec_of

if TYPE_CHECKING:
    from stoop.config import ProducerConfig
    from stoop.images.source import ImageSource

__all__ = ["AsyncClient"]

_ANY_ADDRESS = "s3://bucket/key"


class AsyncClient(SpeechMethods, JobClient):
    """Submits jobs to the queue and reads their answers; one client serves any number of tasks of one event loop.

    Without a `config` it reads the `STOOP_*` variables; `values` are fields of `ProducerConfig` and win over both. It
    connects at first use. An `image` is an `s3://`, `data:` or `https://` address, or a path, bytes, a Pillow image or
    an array of uint8 (RGB), which are uploaded to the configured bucket; an `audio` is an address, a path or bytes.
    `settings` may hold temperature, top_p, max_tokens, max_objects, seed, top_k, stop, presence_penalty,
    frequency_penalty, response_format, regex and adapter. With `cancel_on_exit` a job is cancelled when the reader of
    its stream or result leaves before the end; closing the client cancels the rest. Every method raises only
    `StoopError`s.
    """

    def __init__(
        self,
        config: "ProducerConfig | None" = None,
        *,
        transport: Transport | None = None,
        cancel_on_exit: bool = False,
        **values: Any,
    ) -> None:
        from stoop.config import ProducerConfig

        self.config = ProducerConfig(**values) if config is None else config.replace(**values) if values else config
        self.images = ImageStore(self.config)
        super().__init__(
            transport or _connect(self.config),
            allowed=self.config.allowed,
            timeout_seconds=self.config.timeout_seconds,
            cancel_on_exit=cancel_on_exit,
            read_object=self.images.read,
        )

    async def prepare(
        self,
        skill: str,
        image: "ImageSource | None" = None,
        *,
        settings: Mapping[str, Any] | None = None,
        **fields: Any,
    ) -> Job:
        """Make a job from fields of `stoop_schemas.job.Job`; upload its images and audio unless they are addresses."""
        # a placeholder address lets the job be checked before anything is uploaded
        any_address = None if image is None else _ANY_ADDRESS
        given = {**self._defaults, **fields, "image": any_address}
        if fields.get("audio") is not None:
            job = build_job(skill, settings=settings, **{**given, "audio": _ANY_ADDRESS})
            return checked(msgspec.structs.replace(job, audio=await self.images.audio_address(fields["audio"])))
        messages = fields.get("messages") or []
        sources = image_sources(messages)
        if sources:
            settings = sized(settings, messages)
            given["messages"] = with_addresses(messages, [_ANY_ADDRESS] * len(sources))
        job = build_job(skill, settings=settings, **given)
        if sources:
            addresses = [await self.images.address(source) for source in sources]
            return build_job(skill, settings=settings, **{**given, "messages": with_addresses(messages, addresses)})
        if image is None:
            return job
        return checked(msgspec.structs.replace(job, image=await self.images.address(image)))

    async def encode_image(self, image: "ImageSource") -> EncodedImage:
        """Put the image where workers can read it, once; every method takes the returned value as the image.

        Workers keep the embeddings of recent images, so questions about one image encode it once anyway.
        """
        return EncodedImage(await self.images.address(image))

    async def caption(
        self,
        image: "ImageSource",
        length: str = "normal",
        stream: bool = False,
        settings: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Describe the image, "short", "normal" or "long": {"caption": str, or with `stream` an async iterator}."""
        job = await self.prepare("caption", image, settings=settings, length=length, stream=stream)
        if not stream:
            return await self._answer(job)
        return {"caption": await self._text(job)}

    async def query(
        self,
        image: "ImageSource | None" = None,
        question: str | None = None,
        stream: bool = False,
        settings: Mapping[str, Any] | None = None,
        reasoning: bool | None = None,
        spatial_refs: Sequence[Sequence[float]] | None = None,
    ) -> dict[str, Any]:
        """Answer a question about the image, or about text alone: {"answer": str[, "reasoning": {...}]}.

        With `stream` the answer is an async iterator. The reasoning is complete by then, except for its grounding,
        which is filled in when the iterator ends. Without `reasoning` the model decides; a stream then has the answer
        alone. `spatial_refs` are the points [x, y] and boxes [x_min, y_min, x_max, y_max] that the question mentions,
        as fractions of the image.
        """
        job = await self.prepare(
            "query",
            image,
            settings=settings,
            question=question,
            stream=stream,
            reasoning=reasoning,
            spatial_refs=spatial_refs,
        )
        if not stream:
            return await self._answer(job)
        text = await self._text(job)
        if not reasoning:
            return {"answer": text}
        await text.skip_reasoning()
        return {"answer": text, "reasoning": text.reasoning}

    async def detect(
        self, image: "ImageSource", object: str, settings: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Find every instance of an object: {"objects": [{"x_min", "y_min", "x_max", "y_max"}]}, in fractions."""
        return await self._answer(await self.prepare("detect", image, settings=settings, object=object))

    async def point(
        self,
        image: "ImageSource",
        object: str,
        settings: Mapping[str, Any] | None = None,
        spatial_refs: Sequence[Sequence[float]] | None = None,
    ) -> dict[str, Any]:
        """Point at every instance of an object: {"points": [{"x", "y"}]}, fractions of the image.

        `spatial_refs` are the points and boxes that the request is about, as for a query.
        """
        job = await self.prepare("point", image, settings=settings, object=object, spatial_refs=spatial_refs)
        return await self._answer(job)

    async def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        stream: bool = False,
        settings: Mapping[str, Any] | None = None,
        date: str | None = None,
    ) -> dict[str, Any]:
        """Write the next message of a chat: {"message": {"role": "assistant", "content": str}}.

        With `stream` the message is an async iterator of its text. `messages` are in OpenAI's form: each has a `role`
        (system, user or assistant) and a `content`, which is a string or a list of parts, {"type": "text", "text": ...}
        and {"type": "image_url", "image_url": {"url": image}}; such an image may be anything that `image` may be
        elsewhere. If each has the `detail` "low" beside its `url`, the setting `max_pixels` is 262144. A model that
        uses today's date gets `date` (2026-01-31); without one, the same messages make the same prompt on any day.
        """
        job = await self.prepare("chat", settings=settings, messages=messages, stream=stream, date=date)
        return {"message": await self._text(job)} if stream else await self._answer(job)

    async def gaze(
        self, image: "ImageSource", eye: Sequence[float], settings: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Find the place that a person looks at: {"gaze": {"x", "y"}}, or {"gaze": None} if it is not in the image.

        `eye` is the place (x, y) of the person's eye. All places are fractions of the image.
        """
        return await self._answer(await self.prepare("gaze", image, settings=settings, spatial_refs=[tuple(eye)]))

    async def embed(
        self,
        input: str | Sequence[str],
        *,
        prompt_name: str | None = None,
        dimensions: int | None = None,
        kinds: Sequence[str] | None = None,
        truncate: bool = False,
    ) -> dict[str, Any]:
        """Turn a text, or up to 256, into vectors of length 1: {"embeddings": [[float, ...], ...]}, in their order.

        `prompt_name` chooses one of the model's prompts, such as "query" or "document". `dimensions` asks a model that
        allows it for shorter vectors. A text that is too long raises `JobFailed`; with `truncate` it loses its end.

        `kinds` are "dense" (by default alone), "sparse" and "colbert", if the model has them: {"sparse": [{"indices":
        [token id, ...], "values": [weight, ...]}]} and {"colbert": [[[float, ...], ...]]}, a vector for each token.
        """
        texts = [input] if isinstance(input, str) else list(input)
        job = await self.prepare(
            "embed",
            input=texts,
            prompt_name=prompt_name,
            dimensions=dimensions,
            kinds=None if kinds is None else list(kinds),
            truncate=truncate,
        )
        return await self._answer(job)

    async def rerank(self, query: str, documents: str | Sequence[str], *, truncate: bool = False) -> dict[str, Any]:
        """Score how well a document, or each of up to 256, answers the query: {"scores": [float, ...]}, in their order.

        A higher score is better. For bge-reranker the scores are logits, and 1 / (1 + exp(-score)) is from 0 to 1. With
        `truncate` a document that is too long loses its end.
        """
        texts = [documents] if isinstance(documents, str) else list(documents)
        job = await self.prepare("rerank", query=query, documents=texts, truncate=truncate)
        return await self._answer(job)

    async def run(
        self,
        skill: str,
        image: "ImageSource | None" = None,
        *,
        stream: bool = False,
        settings: Mapping[str, Any] | None = None,
        **fields: Any,
    ) -> dict[str, Any]:
        """Run any skill by its name, including one that another package adds, and return its answer as its own method
        would.

        With `stream` the text of the answer, or the segments of a transcript, are an async iterator; boxes and points
        come whole.
        """
        job = await self.prepare(skill, image, settings=settings, stream=stream, **fields)
        output = spec_of(skill).output
        if stream and output == "transcript":
            job_id = await self.submit(job)
            return {"segments": SegmentStream(job_id, self.stream(job_id, self.config.timeout_seconds))}
        if not stream or output not in TEXT_OUTPUTS:
            return await self._answer(job)
        return {output: await self._text(job)}

    async def aclose(self) -> None:
        """Disconnect; idempotent. With `cancel_on_exit` end the jobs whose end has not been seen."""
        self.images.close()
        await super().aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    @property
    def _defaults(self) -> dict[str, Any]:
        config = self.config
        return {"lane": config.lane, "model": config.job_model, "store_output": config.store_outputs}

    async def _answer(self, job: Job) -> dict[str, Any]:
        return answer(await self.submit_and_wait(job))

    async def _text(self, job: Job) -> TextStream:
        job_id = await self.submit(job)
        return TextStream(job_id, self.stream(job_id, self.config.timeout_seconds))


def _connect(config: "ProducerConfig") -> Transport:
    from stoop.redis.transport import RedisTransport

    return RedisTransport(
        config.redis_url.get_secret_value(), bounds=config.bounds, tenant_bound=config.tenant_bound, keys=config.keys
    )
