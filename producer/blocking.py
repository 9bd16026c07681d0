"""The client for code without an event loop: `AsyncClient` behind one private thread."""

import asyncio
import functools
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, Self, TypeVar

from producer.client import AsyncClient
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

    def __init__(self, config: "ProducerConfig | None" = None, *, transport: Transport | None = None) -> None:
        self._client = AsyncClient(config, transport=transport)
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

    def stream(self, job_id: str, timeout: float | None = None) -> Iterator[Event]:
        """See `AsyncClient.stream`."""
        return self._iterate(self._client.stream(job_id, timeout))

    def result(self, job_id: str, timeout: float | None = None) -> Result:
        """See `AsyncClient.result`."""
        return self._wait(self._client.result(job_id, timeout))

    def cancel(self, job_id: str) -> State | None:
        """See `AsyncClient.cancel`."""
        return self._wait(self._client.cancel(job_id))

    caption = _answering(AsyncClient.caption)
    query = _answering(AsyncClient.query)
    detect = _answering(AsyncClient.detect)
    point = _answering(AsyncClient.point)

    def read_image(self, image: "ImageSource") -> bytes:
        """See `ImageStore.read`."""
        return self._wait(self._client.images.read(image))

    def close(self) -> None:
        """Disconnect and end the thread; idempotent."""
        if self._loop.is_closed():
            return
        self._wait(self._client.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _wait(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
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
            if not self._loop.is_closed():
                self._wait(iterator.aclose())

    def _plain(self, answer: dict[str, Any]) -> dict[str, Any]:
        """Turn the text stream in an answer, if there is one, into a plain iterator."""
        return {
            name: self._iterate(value) if isinstance(value, TextStream) else value for name, value in answer.items()
        }
