"""Jobs into the queue, in the order they come and as many to a call as are there."""

import asyncio
from collections.abc import Sequence
from typing import Final

from producer.bulk.patience import Patience
from producer.bulk.port import Client
from producer.errors import IdempotencyConflict, InvalidJob, QueueFull, QueueUnavailable
from schemas.job import Job

__all__ = ["Submitter"]

_CHUNK: Final = 128

_Waiting = tuple[Job, asyncio.Future[bool]]


class Submitter:
    """Waits for room when the queue says so, and asks for less then: a call is taken whole or not at all."""

    def __init__(self, client: Client, patience: Patience) -> None:
        self._client = client
        self._patience = patience
        self._stop = patience.stop
        self._chunk = _CHUNK
        self._waiting: asyncio.Queue[_Waiting] = asyncio.Queue()

    async def submit(self, job: Job) -> bool:
        """Return when the job is in its lane, with False if the run stopped before.

        Raises `InvalidJob`, `IdempotencyConflict` or, when the queue stays away, `QueueUnavailable`.
        """
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.put_nowait((job, done))
        return await done

    async def serve(self) -> None:
        """Submit until cancelled."""
        while True:
            group = [await self._waiting.get()]
            while len(group) < _CHUNK and not self._waiting.empty():
                group.append(self._waiting.get_nowait())
            await self._put(group)

    async def _put(self, group: Sequence[_Waiting]) -> None:
        while group:
            part = group[: self._chunk]
            if self._stop.asked:
                _tell(group, False)
                return
            try:
                await self._submit(part)
            except QueueFull as full:
                self._chunk = max(1, len(part) // 2)
                self._patience.note(f"the queue is full; going on in {full.retry_after:g} s")
                await self._stop.pause(full.retry_after)
                continue
            self._chunk = min(_CHUNK, 2 * self._chunk)
            group = group[len(part) :]

    async def _submit(self, part: Sequence[_Waiting]) -> None:
        """Submit all in one call or, when one of them is refused, each alone."""
        jobs = [job for job, _ in part]
        try:
            await self._patience.bear("queue", lambda: self._client.submit_many(jobs))
        except (InvalidJob, IdempotencyConflict, QueueUnavailable) as error:
            if len(part) == 1 or isinstance(error, QueueUnavailable):
                _refuse(part, error)
                return
            for one in part:
                await self._submit([one])
        else:
            _tell(part, True)


def _tell(part: Sequence[_Waiting], submitted: bool) -> None:
    for _, done in part:
        if not done.done():
            done.set_result(submitted)


def _refuse(part: Sequence[_Waiting], error: Exception) -> None:
    for _, done in part:
        if not done.done():
            done.set_exception(error)
