"""Keeps captions of large images in flight on the bulk lane, from processes of its own.

Uploading the images takes whole cores. In the process that measures, that would delay what it measures.
"""

import asyncio
import contextlib
import multiprocessing
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING

from stoop import AsyncClient
from stoop.config import ProducerConfig
from stoop.demo.embedded import EmbeddedS3

if TYPE_CHECKING:
    from multiprocessing.sharedctypes import Synchronized

__all__ = ["Flood", "distinct", "flood"]

_MOST_PROCESSES = 4
_SPAWN = multiprocessing.get_context("spawn")


@dataclass(frozen=True, slots=True)
class _Bulk:
    """The jobs that each process submits, and the servers that it uses."""

    config: ProducerConfig
    s3: EmbeddedS3
    photos: Sequence[bytes]
    tokens: int


@dataclass(frozen=True, slots=True)
class Flood:
    """The processes that ask, and the number of jobs that have ended."""

    processes: Sequence[BaseProcess]
    _ended: "Sequence[Synchronized[int]]"

    @property
    def ended(self) -> int:
        """The number of bulk jobs that have ended."""
        return sum(each.value for each in self._ended)

    def check(self) -> None:
        """Raise `RuntimeError` if a process has ended, because the load is then smaller than it should be."""
        if any(process.exitcode is not None for process in self.processes):
            raise RuntimeError("a process that asks for bulk captions has ended; its error is printed above")


@contextlib.contextmanager
def flood(
    config: ProducerConfig, s3: EmbeddedS3, photos: Sequence[bytes], *, jobs: int, tokens: int
) -> Iterator[Flood]:
    """Keep `jobs` captions of `tokens` tokens in flight, each about a new image, until the block ends."""
    number = min(_MOST_PROCESSES, jobs, os.cpu_count() or 1)
    shares = [jobs // number + (index < jobs % number) for index in range(number)]
    # the server's process cannot be pickled, and is not needed to reach it
    reached = EmbeddedS3(s3.endpoint, s3.access_key, s3.secret_key, s3.region, s3.bucket)
    bulk = _Bulk(config, reached, photos, tokens)
    ended = [_SPAWN.Value("q", 0) for _ in shares]
    processes = [
        _SPAWN.Process(target=_process, args=(bulk, index, share, ended[index]), daemon=True)
        for index, share in enumerate(shares)
    ]
    for process in processes:
        process.start()
    try:
        yield Flood(processes, ended)
    finally:
        for process in processes:
            process.kill()
            process.join()


def distinct(jpeg: bytes, number: int) -> bytes:
    """Return the same picture with a numbered comment, so that its bytes are in no cache."""
    comment = f"{number:012}".encode()
    return jpeg[:2] + b"\xff\xfe" + (2 + len(comment)).to_bytes(2) + comment + jpeg[2:]


def _process(bulk: _Bulk, index: int, jobs: int, ended: "Synchronized[int]") -> None:
    asyncio.run(_keep_all_asking(bulk, index, jobs, ended))


async def _keep_all_asking(bulk: _Bulk, index: int, jobs: int, ended: "Synchronized[int]") -> None:
    numbers = count(index << 32)
    async with AsyncClient(bulk.config) as client, asyncio.TaskGroup() as tasks:
        for _ in range(jobs):
            tasks.create_task(_keep_asking(bulk, client, numbers, ended))


async def _keep_asking(bulk: _Bulk, client: AsyncClient, numbers: Iterator[int], ended: "Synchronized[int]") -> None:
    """Keep one bulk job in flight."""
    store = bulk.s3.client()
    while True:
        number = next(numbers)
        key = f"bulk/{number}.jpg"
        body = distinct(bulk.photos[number % len(bulk.photos)], number)
        await asyncio.to_thread(store.put_object, Bucket=bulk.s3.bucket, Key=key, Body=body)
        settings = {"temperature": 0.0, "max_tokens": bulk.tokens}
        job = await client.prepare("caption", f"s3://{bulk.config.bucket}/{key}", lane="bulk", settings=settings)
        await client.result(await client.submit(job))
        await asyncio.to_thread(store.delete_object, Bucket=bulk.s3.bucket, Key=key)
        ended.value += 1
