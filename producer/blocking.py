"""The client for code without an event loop: `AsyncClient` behind one private thread."""

import asyncio
import functools
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, Self, TypeVar

from producer.client import AsyncClient
from producer.errors import QueueUnavailable, StoopError
from producer.gathering import Outcome
from producer.image_source import EncodedImage
from producer.text import TextStream
from producer.transport import Transport
from schemas.event import Event
from schemas.job import Job
from schemas.result import Result
from schemas.state import State

if TYPE_CHECKING:
    from producer.config import ProducerConfig
    from producer.image_source import ImageSource

__all__ = ["Client"]

_P = ParamSpec("_P")
_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)


class _Closable(Protocol[_T_co]):
    """An async iterator that holds something until it is closed."""

    def __aiter__(self) -> AsyncIterator[_T_co]: ...

    def aclose(self) -> Coroutine[Any, Any, None]: ...


def _answering(
    method: Callable[Concatenate[AsyncClient, _P], Coroutine[Any, Any, dict[str, Any]]],
) -> Callable[Concatenate["Client", _P], dict[str, Any]]:
    """Return the method of `Client` that waits for one of `AsyncClient`, with the same arguments."""

    @functools.wraps(method)
    def answer(self: "Client", /, *arguments: _P.args, **named: _P.kwargs) -> dict[str, Any]:
        return self._plain(self._wait(method(self._client, *arguments, **named)))

    answer.__doc__ = f"See `AsyncClient.{method.__name__}`."
    return answer


class Client:
    """Does what `AsyncClient` does, and waits for it; its methods and errors are described there.

    Safe to share between threads, and to call where an event loop is running (it blocks that loop). Iterators are
    plain ones. Close it, or use it in a `with` statement.
    """

    def __init__(
        self,
        config: "ProducerConfig | None" = None,
        *,
        transport: Transport | None = None,
        cancel_on_exit: bool = False,
        **values: Any,
    ) -> None:
        self._client = AsyncClient(config, transport=transport, cancel_on_exit=cancel_on_exit, **values)
        self._closed = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="stoop-client", daemon=True)
        self._thread.start()
        self.config = self._client.config

    def prepare(
        self,
        skill: str,
        image: "ImageSource | None" = None,
        *,
        settings: Mapping[str, Any] | None = None,
        **fields: Any,
    ) -> Job:
        """See `AsyncClient.prepare`."""
        return self._wait(self._client.prepare(skill, image, settings=settings, **fields))

    def submit(self, job: Job) -> str:
        """See `AsyncClient.submit`."""
        return self._wait(self._client.submit(job))

    def submit_many(self, jobs: Sequence[Job]) -> list[str]:
        """See `AsyncClient.submit_many`."""
        return self._wait(self._client.submit_many(jobs))

    def submit_each(self, jobs: Sequence[Job]) -> list[str | StoopError]:
        """See `AsyncClient.submit_each`."""
        return self._wait(self._client.submit_each(jobs))

    def gather(
        self, jobs: Iterable[Job], *, window: int = 256, timeout: float | None = None
    ) -> Iterator[tuple[Job, Outcome]]:
        """See `AsyncClient.gather`; `jobs` is iterated in a thread of its own, so it may call this client too."""
        return self._iterate(self._client.gather(_pulled(jobs), window=window, timeout=timeout))

    def stream(
        self, job_id: str, timeout: float | None = None, *, after: int = -1, cancel_on_exit: bool | None = None
    ) -> Iterator[Event]:
        """See `AsyncClient.stream`."""
        return self._iterate(self._client.stream(job_id, timeout, after=after, cancel_on_exit=cancel_on_exit))

    def result(self, job_id: str, timeout: float | None = None, *, cancel_on_exit: bool | None = None) -> Result:
        """See `AsyncClient.result`."""
        return self._wait(self._client.result(job_id, timeout, cancel_on_exit=cancel_on_exit))

    def state(self, job_id: str) -> State | None:
        """See `AsyncClient.state`."""
        return self._wait(self._client.state(job_id))

    def cancel(self, job_id: str) -> State | None:
        """See `AsyncClient.cancel`."""
        return self._wait(self._client.cancel(job_id))

    caption = _answering(AsyncClient.caption)
    query = _answering(AsyncClient.query)
    detect = _answering(AsyncClient.detect)
    point = _answering(AsyncClient.point)

    def encode_image(self, image: "ImageSource") -> EncodedImage:
        """See `AsyncClient.encode_image`."""
        return self._wait(self._client.encode_image(image))

    def read_image(self, image: "ImageSource") -> bytes:
        """See `ImageStore.read`."""
        return self._wait(self._client.images.read(image))

    def close(self) -> None:
        """Disconnect and end the thread; idempotent."""
        if self._closed:
            return
        self._wait(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    async def _end(self) -> None:
        self._closed = True
        waited_for = asyncio.all_tasks() - {asyncio.current_task()}
        for task in waited_for:
            task.cancel()
        await asyncio.gather(*waited_for, return_exceptions=True)
        await self._client.aclose()

    def _wait(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        if self._closed:
            coroutine.close()
            raise QueueUnavailable("this client is closed")
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            # on Ctrl-C the work must not go on behind the caller's back
            future.cancel()
            raise

    def _iterate(self, iterator: _Closable[_T]) -> Iterator[_T]:
        async def advance() -> tuple[_T] | None:
            async for value in iterator:
                return (value,)
            return None

        try:
            while (advanced := self._wait(advance())) is not None:
                yield advanced[0]
        finally:
            if not self._closed:
                self._wait(iterator.aclose())

    def _plain(self, answer: dict[str, Any]) -> dict[str, Any]:
        """Turn the text stream in an answer, if there is one, into a plain iterator."""
        return {
            name: self._iterate(value) if isinstance(value, TextStream) else value for name, value in answer.items()
        }


async def _pulled(jobs: Iterable[Job]) -> AsyncGenerator[Job, None]:
    """Iterate where a wait for the client does not stop its loop."""
    iterator, loop = iter(jobs), asyncio.get_running_loop()
    thread = ThreadPoolExecutor(1, "stoop-jobs")
    try:
        while (job := await loop.run_in_executor(thread, next, iterator, None)) is not None:
            yield job
    finally:
        thread.shutdown(wait=False)
