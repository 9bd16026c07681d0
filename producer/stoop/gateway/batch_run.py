"""Runs batches: any gateway can continue any batch, and the death of one loses nothing and repeats no answer.

A batch is run part by part. A part's lines become jobs whose ids follow from the batch and the line, so that the queue
recognises them; when all of them have ended, the part is stored. The gateway that runs the batch renews a lock in
Redis; once the lock is gone, another gateway continues after the last stored part.
"""

import asyncio
import contextlib
import itertools
import secrets
import tempfile
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from typing import IO, Any, Final

import msgspec
import structlog

from stoop.errors import QueueUnavailable, StoopError
from stoop.gateway.batch_lines import BatchLine, read_line
from stoop.gateway.batches import BatchState, batch_folder, load_state, save_state, with_batch
from stoop.gateway.errors import ApiError
from stoop.gateway.files import file_key
from stoop.gateway.gateway import Gateway
from stoop.gateway.limits import BatchLock
from stoop_schemas.job import Job
from stoop_schemas.result import Result

__all__ = ["running_batches"]

_log: Any = structlog.get_logger()

_PART_LINES: Final = 200
_MOST_LINES: Final = 50_000
_LOOK_SECONDS: Final = 3.0


@contextlib.asynccontextmanager
async def running_batches(gateway: Gateway) -> AsyncGenerator[None, None]:
    """Run batches inside the `with`. A gateway without a bucket has no files, and so no batches."""
    config = gateway.client.config
    if not config.bucket:
        yield
        return
    lock = BatchLock(config.redis_url.get_secret_value())
    running = asyncio.create_task(_BatchRunner(gateway, lock).serve())
    try:
        yield
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await lock.aclose()


class _BatchRunner:
    """Runs the open batches of every tenant, one at a time, until it is cancelled."""

    def __init__(self, gateway: Gateway, lock: BatchLock) -> None:
        self._gateway = gateway
        self._lock = lock
        self._open = gateway.open_batches
        self._name = secrets.token_hex(8)
        self._problems: dict[str, str] = {}

    async def serve(self) -> None:
        """Run batches whenever there are some; an error is logged, and the next round tries again."""
        while True:
            try:
                await self._look()
            except (StoopError, msgspec.DecodeError) as error:
                _log.warning("batches", trouble=type(error).__name__, problem=str(error))
            self._gateway.new_batch.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_SECONDS):
                    await self._gateway.new_batch.wait()

    async def _look(self) -> None:
        for batch_id, place in (await self._open.list()).items():
            # gateways of one queue may have different buckets
            if place.bucket != self._gateway.store.bucket or not await self._lock.take(batch_id, self._name):
                continue
            try:
                await self._while_locked(batch_id, place.tenant)
                self._problems.pop(batch_id, None)
            except (StoopError, ApiError, msgspec.DecodeError) as error:
                self._warn(batch_id, place.tenant, error)
            finally:
                await self._lock.leave(batch_id, self._name)

    def _warn(self, batch_id: str, tenant: str | None, error: Exception) -> None:
        """Log the problem of a batch, but not at each look that finds the same."""
        problem = str(error)
        if self._problems.get(batch_id) != problem:
            self._problems[batch_id] = problem
            _log.warning("batch", batch=batch_id, tenant=tenant, trouble=type(error).__name__, problem=problem)

    async def _while_locked(self, batch_id: str, tenant: str | None) -> None:
        running = asyncio.create_task(self._run(batch_id, tenant))
        try:
            while not running.done():
                await asyncio.wait({running}, timeout=self._lock.seconds / 3)
                if not running.done() and not await self._lock.take(batch_id, self._name):
                    return  # another gateway goes on with it
            await running
        finally:
            running.cancel()
            await asyncio.wait({running})

    async def _run(self, batch_id: str, tenant: str | None) -> None:
        try:
            state = await load_state(self._gateway.store, tenant, batch_id)
        except ApiError as error:
            if error.status != 404:
                raise
            _log.warning("batch", batch=batch_id, tenant=tenant, trouble="gone", problem=str(error))
            await self._open.remove(batch_id)
            return
        if state.batch.is_open:
            state = await self._finish(await self._parts(state))
            _log.info("batch", batch=batch_id, tenant=tenant, status=state.batch.status, **state.batch.request_counts)
        await self._open.remove(batch_id)

    async def _parts(self, state: BatchState) -> BatchState:
        """Run every part that is not stored yet, unless it is cancelled; return the state before the last step."""
        store, batch = self._gateway.store, state.batch
        folder = batch_folder(state.key.tenant, batch.id)
        done = set(await store.list(f"{folder}parts/"))
        with tempfile.TemporaryFile() as file:
            if not await store.copy_to(file_key(state.key.tenant, batch.input_file_id), file):
                return _wrong(state, "the input file is gone")
            total = _count(file)
            if not 1 <= total <= _MOST_LINES:
                return _wrong(state, f"the input file has {total} lines: 1 to {_MOST_LINES} are allowed")
            counts = {**batch.request_counts, "total": total}
            started = batch.in_progress_at or int(time.time())
            state = with_batch(state, status="in_progress", in_progress_at=started, request_counts=counts)
            await save_state(store, state)
            for number, lines in enumerate(_parts_of(file, batch.endpoint)):
                key = f"{folder}parts/{number:05}.jsonl"
                if await store.get(f"{folder}cancel") is not None:
                    return with_batch(state, status="cancelling")
                if key not in done:
                    part = b"".join([line async for line in self._answers(state, lines)])
                    await store.put(key, part)
                    state = with_batch(state, request_counts=_counted(state.batch.request_counts, part))
                    await save_state(store, state)
        return with_batch(state, status="finalizing", finalizing_at=int(time.time()))

    async def _answers(self, state: BatchState, lines: Sequence[BatchLine]) -> AsyncIterator[bytes]:
        """Yield the line of the output for each line of a part, as they end. Raises `QueueUnavailable`."""
        jobs: dict[str, tuple[Job, BatchLine]] = {}
        for line in lines:
            try:
                job = await line.job(self._gateway, state)
            except ApiError as error:
                yield line.failed(error)
            except QueueUnavailable:
                raise
            except StoopError as error:
                yield line.failed(error)
            else:
                jobs[job.id] = (job, line)
        ends = self._gateway.client.gather([job for job, _ in jobs.values()], window=_PART_LINES)
        async with contextlib.aclosing(ends) as outcomes:
            async for job, outcome in outcomes:
                line = jobs[job.id][1]
                yield line.answered(outcome) if isinstance(outcome, Result) else line.failed(outcome)

    async def _finish(self, state: BatchState) -> BatchState:
        """Gather the parts into the output's two files, and store how the batch ended."""
        if state.batch.status == "failed":
            await save_state(self._gateway.store, state)
            return state
        store, tenant, now = self._gateway.store, state.key.tenant, int(time.time())
        counts = {"total": state.batch.request_counts["total"], "completed": 0, "failed": 0}
        files: dict[str, str | None] = {"output_file_id": None, "error_file_id": None}
        with tempfile.TemporaryFile() as answered, tempfile.TemporaryFile() as failed:
            for key in await store.list(f"{batch_folder(tenant, state.batch.id)}parts/"):
                for line in (await store.get(key) or b"").splitlines(keepends=True):
                    is_answer = _is_answer(line)
                    (answered if is_answer else failed).write(line)
                    counts["completed" if is_answer else "failed"] += 1
            for name, file in (("output", answered), ("error", failed)):
                if file.tell():
                    stored = await store.save_file(tenant, file, f"{state.batch.id}_{name}.jsonl", "batch_output")
                    files[f"{name}_file_id"] = stored.id
        ended: dict[str, Any] = {"status": "completed", "completed_at": now}
        if state.batch.status == "cancelling":
            ended = {"status": "cancelled", "cancelled_at": now}
        state = with_batch(state, request_counts=counts, **files, **ended)
        await save_state(store, state)
        return state


def _count(file: IO[bytes]) -> int:
    file.seek(0)
    return sum(1 for line in file if line.strip())


def _parts_of(file: IO[bytes], endpoint: str) -> Iterator[list[BatchLine]]:
    file.seek(0)
    lines = (line for line in file if line.strip())
    numbered = (read_line(line, number, endpoint) for number, line in enumerate(lines))
    while part := list(itertools.islice(numbered, _PART_LINES)):
        yield part


def _counted(counts: dict[str, int], part: bytes) -> dict[str, int]:
    answers = [_is_answer(line) for line in part.splitlines()]
    completed = counts["completed"] + sum(answers)
    return {**counts, "completed": completed, "failed": counts["failed"] + len(answers) - sum(answers)}


def _is_answer(line: bytes) -> bool:
    return bool(msgspec.json.decode(line)["response"]["status_code"] == 200)


def _wrong(state: BatchState, message: str) -> BatchState:
    errors = {"object": "list", "data": [{"code": "invalid_file", "message": message, "param": None, "line": None}]}
    return with_batch(state, status="failed", failed_at=int(time.time()), errors=errors)
