"""The client for asyncio: submit jobs, follow them, and Moondream's own methods on top."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import msgspec

from producer import events
from producer.errors import InvalidJob, TimedOut
from producer.jobs import answer, build_job, checked, within
from producer.text import TextStream
from producer.transport import Transport
from producer.upload import ImageStore
from schemas.event import Event
from schemas.failure import Rejected
from schemas.job import Job
from schemas.result import Result
from schemas.state import State

if TYPE_CHECKING:
    from producer.config import ProducerConfig
    from producer.image_source import ImageSource

__all__ = ["AsyncClient"]


class AsyncClient:
    """Submits jobs to the queue and reads their answers; one client serves any number of tasks of one event loop.

    Without a `config` it reads the `STOOP_*` variables. Connects at first use. An `image` is an `s3://`, `data:` or
    `https://` address, or a path, bytes or a Pillow image, which are uploaded to the configured bucket.
    `settings` has any of temperature, top_p, max_tokens, max_objects, seed. Every method raises `StoopError`s only.
    """

    def __init__(self, config: "ProducerConfig | None" = None, *, transport: Transport | None = None) -> None:
        from producer.config import ProducerConfig

        self.config = config or ProducerConfig()
        self.images = ImageStore(self.config)
        self._allowed = self.config.allowed
        self._transport = transport or _connect(self.config)

    async def prepare(
        self,
        skill: str,
        image: "ImageSource | None" = None,
        *,
        settings: Mapping[str, Any] | None = None,
        **fields: Any,
    ) -> Job:
        """Make a job of the fields of `schemas.job.Job` that are given, uploading the image if it is no address."""
        # what is wrong is told before anything is uploaded: until then any address will do
        any_address = None if image is None else "s3://bucket/key"
        job = build_job(skill, settings=settings, **{"lane": self.config.lane, **fields, "image": any_address})
        if image is None:
            return job
        return checked(msgspec.structs.replace(job, image=await self.images.address(image)))

    async def submit(self, job: Job) -> str:
        """Put the job into its lane and return its id (that of the first job, if its idempotency key was seen)."""
        return (await self.submit_many([job]))[0]

    async def submit_many(self, jobs: Sequence[Job]) -> list[str]:
        """Put the jobs into their lanes in one go and return their ids."""
        try:
            return await self._transport.submit([within(self._allowed, checked(job)) for job in jobs])
        except Rejected as error:  # text that has no UTF-8, as a command line may hand over
            raise InvalidJob(error.failure) from error

    async def stream(self, job_id: str, timeout: float | None = None) -> AsyncGenerator[Event, None]:
        """Yield every event of the job, each once and in order, until the terminal one.

        Late subscribers get what they missed. After a `RestartedEvent` what came before it counts no more. With a
        `timeout` (seconds, for the whole of it) raises `TimedOut`; the job goes on.
        """
        deadline = None if timeout is None else asyncio.get_running_loop().time() + timeout
        async with contextlib.aclosing(events.follow(self._transport, job_id)) as told:
            while True:
                try:
                    async with asyncio.timeout_at(deadline):
                        event = await anext(told, None)
                except TimeoutError:
                    raise TimedOut(job_id, timeout or 0.0) from None
                if event is None:
                    return
                yield event

    async def result(self, job_id: str, timeout: float | None = None) -> Result:
        """Wait for the job to complete; raise `JobFailed`, `JobCancelled`, `JobExpired` or `TimedOut` if it does not.

        `timeout` is in seconds; without one it is the config's `timeout_seconds`. A job that timed out goes on.
        """
        seconds = self.config.timeout_seconds if timeout is None else timeout
        try:
            async with asyncio.timeout(seconds):
                return events.completed(await events.wait(self._transport, job_id))
        except TimeoutError:
            raise TimedOut(job_id, seconds) from None

    async def cancel(self, job_id: str) -> State | None:
        """Ask for the end of a job; return the state it was in, None if the queue does not know it (yet).

        A job that waits will not run, one that runs stops within a step; its last event, `cancelled`, tells when. One
        that has ended stays as it is, and one that gets its answer in that moment has it.
        """
        before = await self._transport.cancel(job_id)
        return None if before is None else State(before)

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
        reasoning: bool = False,
        spatial_refs: Sequence[Sequence[float]] | None = None,
    ) -> dict[str, Any]:
        """Answer a question about the image, or about nothing but text: {"answer": str[, "reasoning": {...}]}.

        With `stream` the answer is an async iterator; the reasoning is complete by then, but for its grounding,
        which is filled in when the iterator ends. `spatial_refs` are points [x, y] and boxes [x_min, y_min, x_max,
        y_max] that the question speaks of, as fractions of the image.
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
        """Find every such object: {"objects": [{"x_min", "y_min", "x_max", "y_max"}]}, fractions of the image."""
        return await self._answer(await self.prepare("detect", image, settings=settings, object=object))

    async def point(
        self, image: "ImageSource", object: str, settings: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Point at every such object: {"points": [{"x", "y"}]}, fractions of the image."""
        return await self._answer(await self.prepare("point", image, settings=settings, object=object))

    async def aclose(self) -> None:
        """Disconnect; idempotent."""
        self.images.close()
        await self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _answer(self, job: Job) -> dict[str, Any]:
        return answer(await self.result(await self.submit(job)))

    async def _text(self, job: Job) -> TextStream:
        job_id = await self.submit(job)
        return TextStream(job_id, self.stream(job_id, self.config.timeout_seconds))


def _connect(config: "ProducerConfig") -> Transport:
    from producer.redis_transport import RedisTransport

    return RedisTransport(config.redis_url.get_secret_value(), keys=config.keys)
