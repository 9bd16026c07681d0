"""The client for code without an event loop: `AsyncClient` behind one private thread."""

import functools
import os
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, NamedTuple, ParamSpec, Self, TypeVar

from stoop.client.async_client import AsyncClient
from stoop.client.gathering import Outcome
from stoop.client.loop_thread import Closable, LoopThread, PlainIterator
from stoop.client.models import LiveModel
from stoop.client.pulling import pulled
from stoop.client.segment_stream import SegmentStream
from stoop.client.text_stream import TextStream
from stoop.client.transport import Transport
from stoop.errors import ClientUnusable, StoopError
from stoop.images.source import EncodedImage
from stoop_schemas.event import Event
from stoop_schemas.job import Job
from stoop_schemas.result import Result
from stoop_schemas.state import State

if TYPE_CHECKING:
    from stoop.config import ProducerConfig
    from stoop.images.source import ImageSource

__all__ = ["Client"]

_P = ParamSpec("_P")
_T = TypeVar("_T")


class _Running(NamedTuple):
    """The part of a client that belongs to one process."""

    client: AsyncClient
    thread: LoopThread


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
    plain ones. Close it, or use it in a `with` statement. A forked child connects itself at its first call; iterators
    from before the fork raise `ClientUnusable` there, and so does a client that was given a `transport`.
    """

    def __init__(
        self,
        config: "ProducerConfig | None" = None,
        *,
        transport: Transport | None = None,
        cancel_on_exit: bool = False,
        **values: Any,
    ) -> None:
        client = AsyncClient(config, transport=transport, cancel_on_exit=cancel_on_exit, **values)
        self.config = client.config
        self._cancel_on_exit = cancel_on_exit
        self._is_copied = transport is None
        self._closed = False
        # by process: what a parent had is kept, as its connections and its loop's selector are still the parent's
        self._running = {os.getpid(): _Running(client, LoopThread("stoop-client"))}

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
        return self._iterate(self._client.gather(pulled(jobs), window=window, timeout=timeout))

    def stream(
        self, job_id: str, timeout: float | None = None, *, after: int = -1, cancel_on_exit: bool | None = None
    ) -> Iterator[Event]:
        """See `AsyncClient.stream`."""
        return self._iterate(self._client.stream(job_id, timeout, after=after, cancel_on_exit=cancel_on_exit))

    def result(self, job_id: str, timeout: float | None = None, *, cancel_on_exit: bool | None = None) -> Result:
        """See `AsyncClient.result`."""
        return self._wait(self._client.result(job_id, timeout, cancel_on_exit=cancel_on_exit))

    def submit_and_wait(
        self,
        job: Job,
        timeout: float | None = None,
        *,
        cancel_on_exit: bool | None = None,
        on_submitted: Callable[[str], object] = lambda job_id: None,
    ) -> Result:
        """See `AsyncClient.submit_and_wait`; `on_submitted` is called in the client's own thread."""
        waiting = self._client.submit_and_wait(job, timeout, cancel_on_exit=cancel_on_exit, on_submitted=on_submitted)
        return self._wait(waiting)

    def stored_result(self, job_id: str) -> Result | None:
        """See `AsyncClient.stored_result`."""
        return self._wait(self._client.stored_result(job_id))

    def last_seq(self, job_id: str) -> int | None:
        """See `AsyncClient.last_seq`."""
        return self._wait(self._client.last_seq(job_id))

    def state(self, job_id: str) -> State | None:
        """See `AsyncClient.state`."""
        return self._wait(self._client.state(job_id))

    def cancel(self, job_id: str) -> State | None:
        """See `AsyncClient.cancel`."""
        return self._wait(self._client.cancel(job_id))

    def forget(self, job_ids: Sequence[str]) -> None:
        """Remove the answers of jobs that have ended from Redis; see `AsyncClient.forget`."""
        self._wait(self._client.forget(job_ids))

    def models(self, *, lapsed: bool = False) -> list[LiveModel]:
        """See `AsyncClient.models`."""
        return self._wait(self._client.models(lapsed=lapsed))

    caption = _answering(AsyncClient.caption)
    query = _answering(AsyncClient.query)
    detect = _answering(AsyncClient.detect)
    gaze = _answering(AsyncClient.gaze)
    point = _answering(AsyncClient.point)
    chat = _answering(AsyncClient.chat)
    embed = _answering(AsyncClient.embed)
    rerank = _answering(AsyncClient.rerank)
    transcribe = _answering(AsyncClient.transcribe)
    translate = _answering(AsyncClient.translate)

    def run(
        self,
        skill: str,
        image: "ImageSource | None" = None,
        *,
        stream: bool = False,
        settings: Mapping[str, Any] | None = None,
        **fields: Any,
    ) -> dict[str, Any]:
        """See `AsyncClient.run`."""
        return self._plain(self._wait(self._client.run(skill, image, stream=stream, settings=settings, **fields)))

    def encode_image(self, image: "ImageSource") -> EncodedImage:
        """See `AsyncClient.encode_image`."""
        return self._wait(self._client.encode_image(image))

    def read_image(self, image: "ImageSource") -> bytes:
        """See `ImageStore.read`."""
        return self._wait(self._client.images.read(image))

    def close(self) -> None:
        """Disconnect and end the thread; idempotent. Calls that wait meanwhile raise `ClientUnusable`."""
        self._closed = True
        if running := self._running.get(os.getpid()):
            running.thread.close(running.client.aclose)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def _client(self) -> AsyncClient:
        return self._here().client

    def _here(self) -> _Running:
        """Return this process's state of the client, created now if the process was forked."""
        running = self._running.get(os.getpid())
        if running is not None:
            return running
        if self._closed or not self._is_copied:
            why = "is closed" if self._closed else "has a transport from before the process was forked"
            raise ClientUnusable(f"this client {why}: make a client in the child")
        made = _Running(AsyncClient(self.config, cancel_on_exit=self._cancel_on_exit), LoopThread("stoop-client"))
        kept = self._running.setdefault(os.getpid(), made)
        if kept is not made:
            # two threads of the child came here at once
            made.thread.close(made.client.aclose)
        return kept

    def _wait(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        return self._here().thread.wait(coroutine)

    def _iterate(self, iterator: Closable[_T]) -> Iterator[_T]:
        return PlainIterator(self._here().thread, iterator)

    def _plain(self, answer: dict[str, Any]) -> dict[str, Any]:
        """Turn the stream in an answer, if there is one, into a plain iterator."""
        streams = (TextStream, SegmentStream)
        return {name: self._iterate(value) if isinstance(value, streams) else value for name, value in answer.items()}


for _name, _method in vars(Client).items():
    if (_method.__doc__ or "").startswith("See `AsyncClient."):
        _method.__doc__ = getattr(AsyncClient, _name).__doc__  # so that `help` of either class explains it
