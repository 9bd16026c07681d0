"""Puts large outputs into the object store before their jobs are settled, so that Redis holds only their addresses.

Each delivery has a key of its own: a worker that has lost a job cannot overwrite the output of its successor. The
worker deletes no objects; a lifecycle rule of the bucket must.
"""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Final

import msgspec
import structlog
from botocore.exceptions import BotoCoreError, ClientError
from urllib3.exceptions import HTTPError

from stoop_schemas.codec import pack
from stoop_schemas.result import Result
from stoop_worker.jobs.broker import Delivery
from stoop_worker.jobs.fetch.fetcher import FetchConfig, connect_store

__all__ = ["OutputStore"]

log = structlog.get_logger(__name__)

_PUT_SECONDS: Final = 5.0
_PAUSE_SECONDS: Final = 30.0
"""The pause after a failure of the store, in which no job waits for it in vain."""

_FAILURES: Final = (TimeoutError, BotoCoreError, ClientError, HTTPError, OSError)


class OutputStore:
    """A place in the object store, `bucket` or `bucket/prefix`, for outputs of at least `least` bytes.

    A context manager that ends its threads. `clock` returns seconds.
    """

    def __init__(
        self, store: FetchConfig, place: str, *, least: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._bucket, _, prefix = place.partition("/")
        self._prefix = f"{prefix.rstrip('/')}/" if prefix else ""
        self._least = least
        self._clock = clock
        self._resumes_at = clock()
        self._client = connect_store(store)
        self._pool = ThreadPoolExecutor(store.concurrency, "outputs")

    async def put(self, delivery: Delivery, result: Result, stop: "asyncio.Future[Any]") -> Result:
        """Return the result with its output's address, or as it is if the output is small or the store is away.

        Once `stop` is done, the result is returned as it is, because the worker may end before the store answers.
        """
        if result.output is None or self._clock() < self._resumes_at:
            return result
        packed = pack(result.output)
        if len(packed) < self._least:
            return result
        # no id can form the path step `..`, and no other delivery has this attempt and this entry
        key = f"{self._prefix}job-{delivery.job_id}/{delivery.attempt}-{delivery.entry_id}.json"
        try:
            if not await self._written(key, packed, stop):
                return result
        except _FAILURES as error:
            self._resumes_at = self._clock() + _PAUSE_SECONDS
            problem, again = _problem(error), _PAUSE_SECONDS
            log.warning("outputs stay in Redis: the object store does not take them", problem=problem, pause=again)
            return result
        return msgspec.structs.replace(result, output=None, output_address=f"s3://{self._bucket}/{key}")

    def close(self) -> None:
        """Release the connections and threads, without waiting for a thread that still writes; idempotent."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._client.close()

    def __enter__(self) -> "OutputStore":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def _written(self, key: str, packed: bytes, stop: "asyncio.Future[Any]") -> bool:
        """Write the object; return False if `stop` comes first. Raises `TimeoutError` or the error of the write."""
        writing = asyncio.get_running_loop().run_in_executor(self._pool, self._write, key, packed)
        first: set[asyncio.Future[Any]] = {writing, stop}
        try:
            await asyncio.wait(first, timeout=_PUT_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if writing.done():
                writing.result()
                return True
        finally:
            writing.cancel()
        if not stop.done():
            raise TimeoutError
        return False

    def _write(self, key: str, packed: bytes) -> None:
        self._client.put_object(Bucket=self._bucket, Key=key, Body=packed, ContentType="application/json")


def _problem(error: Exception) -> str:
    code = error.response.get("Error", {}).get("Code") if isinstance(error, ClientError) else None
    if code == "AccessDenied":
        return f"{code}: give this worker the right s3:PutObject"
    return code or type(error).__name__
