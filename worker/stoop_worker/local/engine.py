"""`LocalEngine`: a model in this process, with the client's methods."""

import asyncio
import base64
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from stoop_schemas.chat_images import image_sources
from stoop_schemas.failure import FailureCode, Rejected
from stoop_schemas.job import Job
from stoop_schemas.result import Result
from stoop_schemas.skills import TEXT_OUTPUTS, spec_of
from stoop_worker.audio import MelGeometry
from stoop_worker.engine.encoder import Values
from stoop_worker.engine.request import Finished, Media, Output, Refused, Request, Sampling
from stoop_worker.engine.thread import EngineThread
from stoop_worker.engine_process.boot import boot
from stoop_worker.engine_process.protocol import EngineSettings
from stoop_worker.errors import ConfigError
from stoop_worker.figures import Figures
from stoop_worker.images import PixelLimits
from stoop_worker.jobs.budget import Budget
from stoop_worker.jobs.pipelines import Passage, Windows, transcribe
from stoop_worker.jobs.translate import (
    Timings,
    completed,
    temperatures_of,
    to_request,
    to_speech_request,
    transcribed,
)
from stoop_worker.local.images import media_of
from stoop_worker.local.job import local_job
from stoop_worker.local.outputs import Outputs
from stoop_worker.local.speech import AudioSource, LocalSegments, parts_of
from stoop_worker.local.speech_methods import SpeechMethods
from stoop_worker.local.stream import LocalText
from stoop_worker.models.catalog import read_catalog

if TYPE_CHECKING:
    from types import TracebackType

    from stoop_worker.engine.encoder import Encoder, EncoderSpec
    from stoop_worker.engine.model import Model, Spec
    from stoop_worker.local.images import ImageSource

__all__ = ["LocalEngine"]


class LocalEngine(SpeechMethods):
    """A model, named by a short name, folder, file or repository, which stays loaded while the context is open.
    `sampling` are defaults for settings; otherwise the model's own apply. Further keywords are those of
    `EngineSettings`, such as device="cpu" or max_batch=8. A request that cannot be answered raises `Rejected`, with the
    failure that a job would have; a bad image raises an `ImageError`.
    """

    def __init__(
        self, model: str | Path, *, revision: str | None = None, sampling: Sampling | None = None, **settings: Any
    ) -> None:
        unknown = set(settings) - {field.name for field in fields(EngineSettings)}
        if unknown:
            raise ConfigError(f"LocalEngine has no setting {', '.join(sorted(unknown))}")
        chosen = read_catalog().choose(str(model), revision)
        self._given_sampling = sampling
        self._catalog_sampling = chosen.entry.sampling if chosen.entry else {}
        if settings.get("adapters") is not None:
            settings["adapters"] = Path(settings["adapters"])
        defaults = {"licence": chosen.entry and chosen.entry.licence, "max_context": chosen.context}
        self._settings = EngineSettings(model=chosen.source, revision=chosen.revision, **{**defaults, **settings})
        self._model: Model | Encoder | None = None

    async def __aenter__(self) -> "LocalEngine":
        self._outputs = Outputs(asyncio.get_running_loop())
        self._windows = Budget(self._settings.max_batch)
        await asyncio.to_thread(self._start)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: "TracebackType | None"
    ) -> None:
        await asyncio.to_thread(self._thread.stop)
        self._outputs.end()

    @property
    def figures(self) -> Figures:
        """Counts of the engine's work and holdings by name, as in the worker's metrics."""
        return self._thread.figures

    async def query(
        self,
        image: "ImageSource | None" = None,
        question: str | None = None,
        stream: bool = False,
        settings: Mapping[str, Any] | None = None,
        reasoning: bool | None = None,
        spatial_refs: Sequence[Sequence[float]] | None = None,
    ) -> dict[str, Any]:
        """Answer a question about the image, or about text alone: {"answer": str[, "reasoning": {...}]}."""
        asked = {"question": question, "reasoning": reasoning, "spatial_refs": spatial_refs}
        answer = await self.run("query", image, stream=stream, settings=settings, **asked)
        if stream and reasoning:
            await answer["answer"].skip_reasoning()
            return {**answer, "reasoning": answer["answer"].reasoning}
        return answer

    async def caption(
        self,
        image: "ImageSource",
        length: str = "normal",
        stream: bool = False,
        settings: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Describe the image, "short", "normal" or "long": {"caption": str, or with `stream` an async iterator}."""
        return await self.run("caption", image, stream=stream, settings=settings, length=length)

    async def detect(
        self, image: "ImageSource", object: str, settings: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Find every instance of an object: {"objects": [{"x_min", "y_min", "x_max", "y_max"}]}, in fractions."""
        return await self.run("detect", image, settings=settings, object=object)

    async def point(
        self,
        image: "ImageSource",
        object: str,
        settings: Mapping[str, Any] | None = None,
        spatial_refs: Sequence[Sequence[float]] | None = None,
    ) -> dict[str, Any]:
        """Point at every instance of an object: {"points": [{"x", "y"}]}, fractions of the image."""
        return await self.run("point", image, settings=settings, object=object, spatial_refs=spatial_refs)

    async def gaze(
        self, image: "ImageSource", eye: Sequence[float], settings: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Find the place that the person with this eye (x, y) looks at: {"gaze": {"x", "y"}}, or {"gaze": None}."""
        return await self.run("gaze", image, settings=settings, spatial_refs=[tuple(eye)])

    async def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        stream: bool = False,
        settings: Mapping[str, Any] | None = None,
        date: str | None = None,
    ) -> dict[str, Any]:
        """Write the next message of a chat: {"message": {"role": "assistant", "content": str}}.

        Its images may be anything that `image` may be elsewhere, in place of the address.
        """
        return await self.run("chat", stream=stream, settings=settings, messages=messages, date=date)

    async def embed(
        self,
        input: str | Sequence[str],
        *,
        prompt_name: str | None = None,
        dimensions: int | None = None,
        kinds: Sequence[str] | None = None,
        truncate: bool = False,
    ) -> dict[str, Any]:
        """Turn texts into vectors of length 1: {"embeddings": [[float, ...], ...]}, in their order.

        `kinds` are "dense", "sparse" and "colbert", as for the client's method.
        """
        return await self.run(
            "embed",
            input=[input] if isinstance(input, str) else list(input),
            prompt_name=prompt_name,
            dimensions=dimensions,
            kinds=None if kinds is None else list(kinds),
            truncate=truncate,
        )

    async def rerank(self, query: str, documents: str | Sequence[str], *, truncate: bool = False) -> dict[str, Any]:
        """Score how well each document answers the query: {"scores": [float, ...]}, in their order."""
        texts = [documents] if isinstance(documents, str) else list(documents)
        return await self.run("rerank", query=query, documents=texts, truncate=truncate)

    async def run(
        self,
        skill: str,
        image: "ImageSource | None" = None,
        *,
        stream: bool = False,
        settings: Mapping[str, Any] | None = None,
        **asked: Any,
    ) -> dict[str, Any]:
        """Run any skill by its name, and return its answer as its own method would."""
        audio = asked.get("audio")
        job = local_job(skill, image, settings, asked)
        sources = image_sources(asked.get("messages")) if image is None else [image]
        if audio is not None and isinstance(self._spec.preparation, MelGeometry):
            return await self._hear(job, audio, self._spec.preparation, stream=stream)
        output = spec_of(skill).output
        if stream and output in TEXT_OUTPUTS:
            job = msgspec.structs.replace(job, stream=True)
            return {output: LocalText(self._follow(job, sources), lambda finished: completed(job, finished, Timings()))}
        answer: dict[str, Any] = msgspec.to_builtins((await self._result(job, sources)).output)
        if "embeddings" in answer:
            answer["embeddings"] = [_values(packed).tolist() for packed in answer["embeddings"]]
        if "colbert" in answer:
            answer["colbert"] = [
                _values(each["values"]).reshape(each["count"], -1).tolist() for each in answer["colbert"]
            ]
        return answer

    async def result(self, job: Job, image: "ImageSource | None" = None) -> Result:
        """Run a job whose image is passed separately; return the whole result, with metrics and the finish reason."""
        return await self._result(job, [] if image is None else [image])

    async def _result(self, job: Job, sources: Sequence[Any]) -> Result:
        async for output in self._follow(job, sources):
            if isinstance(output, Finished):
                return completed(job, output, Timings())
        raise AssertionError("a request ends in Finished, or raises")

    async def _hear(self, job: Job, audio: AudioSource, geometry: MelGeometry, *, stream: bool) -> dict[str, Any]:
        async def hear(report: Callable[[Passage], None]) -> Result:
            request, temperatures = to_speech_request(job), temperatures_of(job)
            async with parts_of(audio, job, geometry) as parts:
                found = await transcribe(
                    request,
                    parts,
                    temperatures,
                    run=self._end,
                    report=report,
                    windows=Windows(self._windows, job.parallel),
                )
            return transcribed(job, found, Timings())

        if stream:
            return {"segments": LocalSegments(hear, job)}
        answer: dict[str, Any] = msgspec.to_builtins((await hear(lambda passage: None)).output)
        return answer

    async def _end(self, request: Request) -> Finished:
        """Run one request, and return its end; raises `Rejected`."""
        async with aclosing(self._outputs.follow(self._thread, request)) as outputs:
            async for output in outputs:
                if isinstance(output, Refused):
                    raise Rejected(FailureCode(output.refusal.value), output.message)
                if isinstance(output, Finished):
                    return output
        raise AssertionError("a request ends in Finished, or raises")

    async def _follow(self, job: Job, sources: Sequence[Any]) -> AsyncGenerator[Output, None]:
        """Run a job; its images are `sources`, or else those at its addresses."""
        media = await asyncio.to_thread(self._media, job, sources or job.images)
        outputs = self._outputs.follow(self._thread, to_request(job, media, self._sampling))
        try:
            async for output in outputs:
                if isinstance(output, Refused):
                    raise Rejected(FailureCode(output.refusal.value), output.message)
                yield output
        finally:
            await outputs.aclose()

    def _media(self, job: Job, sources: Sequence[Any]) -> list[Media]:
        preparation = self._spec.preparation
        if isinstance(preparation, MelGeometry):
            return []  # a model of speech sees nothing, and refuses the task
        pixels = PixelLimits(job.settings.min_pixels, job.settings.max_pixels)
        assert self._model is not None
        on_device = self._model.device.type != "cpu"
        return [media_of(source, preparation, pixels, on_device=on_device) for source in sources]

    @property
    def _spec(self) -> "Spec | EncoderSpec":
        assert self._model is not None, "the engine runs within its context"
        return self._model.spec

    def _start(self) -> None:
        engine, self._model = boot(self._settings)
        own = {**self._model.spec.sampling, **self._catalog_sampling}
        self._sampling = self._given_sampling or replace(Sampling(), **own)  # type: ignore[arg-type]
        self._thread = EngineThread(engine, self._outputs.deliver, self._outputs.end)
        self._thread.start()


def _values(packed: str) -> Values:
    """Return the values of a vector, which the wire carries as little-endian float32 values in base64."""
    return np.frombuffer(base64.b64decode(packed), dtype="<f4")
