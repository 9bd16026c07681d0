"""The model behind Triton's Python backend, without Triton: each request becomes a job, and its answer responses.

One instance serves any number of requests at once, on the event loop that Triton runs `async` models on. Triton does
not notify a model when a caller leaves, so the model polls for it several times a second.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Coroutine, Mapping, Sequence
from typing import Any, Final, Protocol

from stoop.client.async_client import AsyncClient
from stoop.errors import InvalidJob, StoopError
from stoop.gateway.errors import ApiError, from_stoop, in_names_of
from stoop.gateway.follower import Follower
from stoop.gateway.kserve.answer import texts_of, whole_text
from stoop.gateway.kserve.ask import Value, ask_of
from stoop.gateway.kserve.codes import codes_of, message_of
from stoop.gateway.models import Models, split_adapter
from stoop.gateway.pieces import Pieces
from stoop_schemas.job import Job

__all__ = ["TritonModel", "TritonRequest"]

_log = logging.getLogger(__name__)

_ASK_SECONDS: Final = 0.1
_READY_SECONDS: Final = 2.0
_CLOSE_SECONDS: Final = 5.0


class TritonRequest(Protocol):
    """One request of Triton, and the way to answer it."""

    @property
    def id(self) -> str:
        """The caller's id; empty if it gave none."""

    def inputs(self) -> Mapping[str, Sequence[Value]]:
        """Return the elements of each input."""

    def is_cancelled(self) -> bool:
        """Return whether the caller has left."""

    def send(self, text: str) -> None:
        """Send a response."""

    def end(self) -> None:
        """Send the mark that no response follows. Triton keeps a request for ever if it is neither ended nor failed."""

    def fail(self, code: str, message: str) -> None:
        """Send an error, after which nothing may follow; `code` is the name of one of Triton's codes."""


class TritonModel:
    """Answers requests through a client that the `STOOP_*` variables configure. Raises `ConfigError`."""

    def __init__(self, client: AsyncClient | None = None) -> None:
        self._client = client or AsyncClient()
        self._models = Models(self._client, {})
        self._loop: asyncio.AbstractEventLoop | None = None

    async def answer(self, request: TritonRequest) -> None:
        """Answer one request; an error is an answer too."""
        self._loop = asyncio.get_running_loop()
        try:
            await self._answer(request)
        except (StoopError, ApiError) as error:
            api_error = from_stoop(error) if isinstance(error, StoopError) else error
            request.fail(codes_of(api_error).triton, message_of(api_error))
        except Exception as error:
            # its message may hold a caller's text
            _log.error("a request failed unforeseen: %s", type(error).__name__)
            request.fail("INTERNAL", "internal: the model failed")
        else:
            request.end()

    async def is_ready(self) -> bool:
        """Return whether a live worker serves the jobs of this model."""
        self._loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_READY_SECONDS):
                models = await self._client.models()
        except (StoopError, TimeoutError):
            return False
        name = self._client.config.job_model
        return any(name in (None, model.name) for model in models)

    def close(self) -> None:
        """Disconnect; called in another thread than the event loop's."""
        if self._loop is not None and self._loop.is_running():
            asyncio.run_coroutine_threadsafe(self._client.aclose(), self._loop).result(_CLOSE_SECONDS)

    async def _answer(self, request: TritonRequest) -> None:
        inputs = request.inputs()
        job = await self._job(inputs)
        asked = _asked(inputs)
        if not job.stream:
            await _unless_cancelled(request, self._send_whole(request, job, asked))
            return
        # not cut off: a job whose submission is under way could not be cancelled
        job_id = await self._client.submit(job)
        await _unless_cancelled(request, self._send_chunks(request, job_id, asked))

    async def _job(self, inputs: Mapping[str, Sequence[Value]]) -> Job:
        ask = await ask_of(inputs)
        settings = dict(ask.settings)
        fields = dict(ask.fields)
        if ask.model is not None:
            fields["model"] = await self._models.resolve(ask.model)
            settings.setdefault("adapter", split_adapter(ask.model)[1])
        if ask.lane is not None:
            fields["lane"] = ask.lane
        try:
            return await self._client.prepare(ask.skill, ask.image, settings=settings, **fields)
        except InvalidJob as error:
            raise in_names_of(ask.names, error) from None

    async def _send_whole(self, request: TritonRequest, job: Job, asked: str) -> None:
        result = await self._client.submit_and_wait(job, cancel_on_exit=True)
        request.send(whole_text(result, request.id or result.id, asked=asked))

    async def _send_chunks(self, request: TritonRequest, job_id: str, asked: str) -> None:
        follower = Follower(self._client, job_id, timeout=self._client.config.timeout_seconds, cancels=True)
        try:
            texts: AsyncGenerator[str, None] = texts_of(Pieces(follower), request.id or job_id, asked=asked)
            async for text in texts:
                request.send(text)
        finally:
            await asyncio.wait({follower.close()})


def _asked(inputs: Mapping[str, Sequence[Value]]) -> str:
    """Return the skill in the caller's words."""
    (skill,) = inputs["SKILL"]
    return skill.decode() if isinstance(skill, bytes) else str(skill)


async def _unless_cancelled(request: TritonRequest, work: Coroutine[Any, Any, None]) -> None:
    """Do the work, and break it off once the caller has left."""
    task = asyncio.create_task(work)
    while not task.done():
        await asyncio.wait({task}, timeout=_ASK_SECONDS)
        if not task.done() and request.is_cancelled():
            task.cancel()
            await asyncio.wait({task})
            return
    task.result()
