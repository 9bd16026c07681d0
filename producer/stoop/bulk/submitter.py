"""Submits jobs to the queue in order, as many per call as are waiting."""

import asyncio
from collections.abc import Sequence
from typing import Final

from stoop.bulk.patience import Patience
from stoop.bulk.port import Client
from stoop.errors import IdempotencyConflict, InvalidJob, QueueFull, QueueUnavailable
from stoop_schemas.job import Job

__all__ = ["Submitter"]

_CHUNK: Final = 128

_Waiting = tuple[Job, asyncio.Future[bool]]


class Submitter:
    """Waits for room when the queue is full, then submits fewer jobs per call.

    Fewer, because the queue accepts a call whole or not at all.
    """

    def __init__(self, client: Client, patience: Patience) -> None:
        self._client = client
        self._patience = patience
        self._stop = patience.stop
        self._chunk = _CHUNK
        self._waiting: asyncio.Queue[_Waiting] = asyncio.Queue()

    async def submit(self, job: Job) -> bool:
        """Submit the job. Return True once it is in its lane, or False if the run stopped first.

        Raises `InvalidJob`, `IdempotencyConflict`, or `QueueUnavailable` if the queue stays unreachable.
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
                _resolve(group, False)
                return
            try:
                await self._submit(part)
            except QueueFull as full:
                self._chunk = max(1, len(part) // 2)
                self._patience.note(f"the queue is full; retrying in {full.retry_after:g} s")
                await self._stop.pause(full.retry_after)
                continue
            self._chunk = min(_CHUNK, 2 * self._chunk)
            group = group[len(part) :]

    async def _submit(self, part: Sequence[_Waiting]) -> None:
        """Submit all jobs in one call. If the queue refuses one of them, submit each by itself."""
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
            _resolve(part, True)


def _resolve(part: Sequence[_Waiting], submitted: bool) -> None:
    for _, done in part:
        if not done.done():
            done.set_result(submitted)


def _refuse(part: Sequence[_Waiting], error: Exception) -> None:
    for _, done in part:
        if not done.done():
            done.set_exception(error)
