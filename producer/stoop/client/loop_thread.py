"""An event loop in a thread of its own, and plain iterators over its async iterators."""

import asyncio
import contextlib
import os
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import CancelledError, Future
from typing import Any, Generic, Protocol, TypeVar

from stoop.errors import ClientUnusable

__all__ = ["Closable", "LoopThread", "PlainIterator"]

_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)


class Closable(Protocol[_T_co]):
    """An async iterator that holds something until it is closed."""

    def __aiter__(self) -> AsyncIterator[_T_co]:
        """Return itself."""

    def aclose(self) -> Coroutine[Any, Any, None]:
        """Release its resources; idempotent."""


class LoopThread:
    """Runs coroutines on an event loop in a daemon thread, for callers in other threads.

    Python's garbage collector may call finalisers on the loop's own thread. Nothing waits for the loop there,
    because that wait would never end.
    """

    def __init__(self, name: str) -> None:
        self._pid = os.getpid()
        self._closed = False
        # held while work is submitted, so that none goes to a loop that has stopped; reentrant, because a signal
        # handler or a finaliser may interrupt the thread that holds it
        self._lock = threading.RLock()
        self._unawaited: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def wait(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """Run the coroutine on the loop, and return its result or raise its error.

        Raises `ClientUnusable` if the thread is closed, even during the wait, or if waiting is not possible here.
        """
        future = self._hand_over(coroutine)
        try:
            return future.result()
        except CancelledError:
            if self._closed:
                raise ClientUnusable("this client was closed while a call waited for it") from None
            raise
        except BaseException:
            # on Ctrl-C the work must stop too
            future.cancel()
            raise

    def start(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start work without waiting for it. Takes no lock and never raises, so finalisers may call it anywhere."""
        if os.getpid() == self._pid:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._start, work)

    def close(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Cancel all work, run `last`, and end the thread; idempotent. On the loop's own thread it does not wait."""
        with self._lock:
            if self._closed or os.getpid() != self._pid:
                return
            self._closed = True
            ended = asyncio.run_coroutine_threadsafe(self._end(last), self._loop)
        ended.add_done_callback(lambda _: self._loop.call_soon_threadsafe(self._loop.stop))
        if threading.current_thread() is self._thread:
            return
        try:
            ended.result()
        finally:
            self._thread.join()

    def _run(self) -> None:
        while not self._closed:
            # asyncio stores these as the task's result, and also stops the loop that others wait for
            with contextlib.suppress(SystemExit, KeyboardInterrupt):
                self._loop.run_forever()
        self._loop.close()

    def _hand_over(self, coroutine: Coroutine[Any, Any, _T]) -> "Future[_T]":
        with self._lock:
            refusal = self._refusal()
            if refusal is None:
                return asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        coroutine.close()
        raise ClientUnusable(refusal)

    def _refusal(self) -> str | None:
        if os.getpid() != self._pid:
            return "this was made before the process was forked: make a new one in the child"
        if self._closed:
            return "this client is closed"
        if threading.current_thread() is self._thread:
            return "a call on the client's own thread, as from a __del__ method, would wait for itself for ever"
        return None

    def _start(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if not self._closed:
            task = self._loop.create_task(work())
            self._unawaited.add(task)
            task.add_done_callback(self._unawaited.discard)

    async def _end(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await last()


class _Serial(Generic[_T]):
    """An async iterator that is advanced or closed by one call at a time, because asyncio refuses both at once."""

    def __init__(self, iterator: Closable[_T]) -> None:
        self._iterator = iterator
        self._lock = asyncio.Lock()
        self._advancing: asyncio.Task[Any] | None = None

    async def advance(self) -> tuple[_T] | None:
        async with self._lock:
            self._advancing = asyncio.current_task()
            try:
                async for value in self._iterator:
                    return (value,)
                return None
            finally:
                self._advancing = None

    async def aclose(self) -> None:
        if self._advancing is not None:
            self._advancing.cancel()
        async with self._lock:
            await self._iterator.aclose()


class PlainIterator(Iterator[_T]):
    """Iterates over an async iterator of a `LoopThread`; a caller that stops early may close it, or just drop it."""

    def __init__(self, thread: LoopThread, iterator: Closable[_T]) -> None:
        self._thread = thread
        self._source = _Serial(iterator)
        # the garbage collector may run this on any thread, even the loop's own, so nothing may wait here
        self._dropped = weakref.finalize(self, thread.start, self._source.aclose)
        self._dropped.atexit = False

    def __next__(self) -> _T:
        if not self._dropped.alive:
            raise StopIteration
        try:
            advanced = self._thread.wait(self._source.advance())
        except CancelledError:
            raise StopIteration from None  # closed by another thread
        except BaseException:
            self.close()
            raise
        if advanced is None:
            self.close()
            raise StopIteration
        return advanced[0]

    def close(self) -> None:
        """Stop following, and unsubscribe; idempotent."""
        if not self._dropped.detach():
            return
        try:
            self._thread.wait(self._source.aclose())
        except ClientUnusable:
            self._thread.start(self._source.aclose)
