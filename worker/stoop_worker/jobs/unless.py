"""Interrupts work when a future is done, without a task for the work."""

import asyncio
from types import TracebackType
from typing import Any

__all__ = ["Unless"]


class Unless:
    """Interrupts a `with` block once `stop` is done, as `asyncio.timeout` does when its time is over.

    It cancels the block's task, which then goes on after the block, and `stopped` is True. A block that ends all the
    same, with a result or an error, is not `stopped`. If others cancel the task too, it ends as they ask.
    """

    def __init__(self, stop: "asyncio.Future[Any]") -> None:
        self._stop = stop
        self._over = False
        self._cancelled = False
        self.stopped = False

    def __enter__(self) -> "Unless":
        task = asyncio.current_task()
        assert task is not None, "only a task can be cancelled"
        self._task, self._cancelling = task, task.cancelling()
        self._stop.add_done_callback(self._cancel)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self._over = True
        self._stop.remove_done_callback(self._cancel)
        if self._cancelled:
            others = self._task.uncancel() > self._cancelling  # someone else has cancelled the task, too
            self.stopped = kind is asyncio.CancelledError and not others
        return self.stopped

    def _cancel(self, _: "asyncio.Future[Any]") -> None:
        if not self._over:  # the loop may call this after the block
            self._cancelled = True
            self._task.cancel()
