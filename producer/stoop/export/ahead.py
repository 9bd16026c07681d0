"""Makes slow calls ahead of time in threads, and yields their answers in order."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, TypeVar

from stoop.errors import StoopError

__all__ = ["ahead"]

_Asked = TypeVar("_Asked")
_Answer = TypeVar("_Answer")

_THREADS: Final = 16
_WINDOW: Final = 32


def ahead(call: Callable[[_Asked], _Answer], asked: Iterable[_Asked]) -> Iterator[tuple[_Asked, _Answer | StoopError]]:
    """Yield each value with the call's answer, or with the `StoopError` that it raised.

    At most 32 answers wait, so memory is bounded. `asked` is iterated in the caller's thread.
    """
    waiting: deque[tuple[_Asked, Future[_Answer | StoopError]]] = deque()
    with ThreadPoolExecutor(_THREADS) as threads:
        try:
            for each in asked:
                waiting.append((each, threads.submit(_caught, call, each)))
                if len(waiting) >= _WINDOW:
                    first, answer = waiting.popleft()
                    yield first, answer.result()
            while waiting:
                first, answer = waiting.popleft()
                yield first, answer.result()
        finally:
            for _, answer in waiting:
                answer.cancel()


def _caught(call: Callable[[_Asked], _Answer], asked: _Asked) -> _Answer | StoopError:
    try:
        return call(asked)
    except StoopError as error:
        return error
