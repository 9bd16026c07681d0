"""Turns a job's image address into the engine's input, within budgets and by priority.

Jobs that want the same image at the same time share one fetch and one decoding.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

from stoop_worker.images import Crops, Image
from stoop_worker.jobs.budget import Budget, Loan
from stoop_worker.jobs.fetch.address import is_inline

__all__ = ["Budgets", "FetchPort", "Images", "Prepared", "StudioPort", "Wanted"]


class FetchPort(Protocol):
    """Brings the bytes of an image."""

    async def fetch(self, image_uri: str, tenant: str | None = None, priority: int = 0) -> bytes:
        """Return the encoded image for a job of this tenant; raises an `ImageError`."""


class StudioPort(Protocol):
    """Makes encoded images ready for the engine."""

    async def measure(self, encoded: bytes) -> int:
        """Return the size of the decoded pixels in bytes; 0 if this is not an image."""

    async def prepare(self, encoded: bytes) -> Crops | Image:
        """Load one image, and cut it if the engine wants that; raises `ImageTooLarge` or `ImageUndecodable`."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The image that a job needs. Only jobs of the same tenant and priority share one."""

    address: str
    tenant: str | None
    priority: int


@dataclass(frozen=True, slots=True)
class Prepared:
    """An image that is ready for the engine, and the times spent on it, in milliseconds."""

    image: Crops | Image
    fetch_ms: float
    image_ms: float


@dataclass(frozen=True, slots=True)
class Budgets:
    """The limits for all images together: bytes fetched and not yet decoded, decoding threads, bytes of pixels.

    Pixels count until every job that uses them has ended, because the engine may need them again. `largest` is the
    maximum size of one encoded image in bytes.
    """

    encoded: Budget
    threads: Budget
    pixels: Budget
    largest: int


class _Flight:
    """One image, in preparation or ready, for all jobs that share it."""

    def __init__(self, wanted: Wanted, parts: "_Parts") -> None:
        self.users = 0
        self.began: float | None = None  # the start of its fetch, by the loop's clock
        self._wanted = wanted
        self._parts = parts
        self._pixels: Loan | None = None
        # starts at the next turn of the loop, when all jobs of the same burst have joined
        self.work = asyncio.create_task(self._prepare())

    def end(self) -> None:
        """Release the image, or stop preparing it."""
        if self.work.done():
            self._give_back()
        else:
            self.work.cancel()

    async def _prepare(self) -> Prepared:
        start = time.perf_counter()
        try:
            with await self._room() as room:
                self.began = asyncio.get_running_loop().time()
                wanted = self._wanted
                encoded = await self._parts.fetcher.fetch(wanted.address, wanted.tenant, wanted.priority)
                room.shrink(len(encoded))
                fetched = time.perf_counter()
                image = await self._decode(encoded)
        except BaseException:
            self._give_back()
            raise
        return Prepared(image, 1000 * (fetched - start), 1000 * (time.perf_counter() - fetched))

    async def _room(self) -> Loan:
        """Borrow room for the bytes: the maximum size of an image, because its real size is not known yet."""
        # an inline image is in memory already
        largest = 0 if is_inline(self._wanted.address) else self._parts.budgets.largest
        return await self._parts.budgets.encoded.borrow(largest, self._wanted.priority)

    async def _decode(self, encoded: bytes) -> Crops | Image:
        studio, budgets, priority = self._parts.studio, self._parts.budgets, self._wanted.priority
        with await budgets.threads.borrow(1, priority):
            self._pixels = await budgets.pixels.borrow(await studio.measure(encoded), priority)
            image = await studio.prepare(encoded)
        self._pixels.shrink(image.pixels.nbytes)
        return image

    def _give_back(self) -> None:
        if self._pixels is not None:
            self._pixels.close()


@dataclass(frozen=True, slots=True)
class _Parts:
    fetcher: FetchPort
    studio: StudioPort
    budgets: Budgets


class Images:
    """Prepares images, and keeps each as long as a job uses it."""

    def __init__(self, fetcher: FetchPort, studio: StudioPort, budgets: Budgets) -> None:
        self._parts = _Parts(fetcher, studio, budgets)
        self._flights: dict[Wanted, _Flight] = {}
        self._working: set[asyncio.Task[Prepared]] = set()

    @contextlib.asynccontextmanager
    async def prepared(self, wanted: Wanted, submitted: float) -> AsyncIterator[Prepared]:
        """Yield the image once it is ready; raises an `ImageError`.

        `submitted` is the time of the job's submission, by the loop's clock. An image fetched before that time is not
        reused, because the caller may have written the object in between.
        """
        flight = self._flights.get(wanted)
        if flight is None or (flight.began is not None and flight.began < submitted):
            flight = self._flights[wanted] = self._start(wanted)
        flight.users += 1
        try:
            yield await asyncio.shield(flight.work)
        finally:
            flight.users -= 1
            if not flight.users:
                self._forget(wanted, flight)
                flight.end()

    def _start(self, wanted: Wanted) -> _Flight:
        flight = _Flight(wanted, self._parts)
        self._working.add(flight.work)
        flight.work.add_done_callback(lambda work: self._worked(wanted, flight))
        return flight

    def _worked(self, wanted: Wanted, flight: _Flight) -> None:
        self._working.discard(flight.work)
        if flight.work.cancelled() or flight.work.exception():
            self._forget(wanted, flight)  # a later job tries again

    def _forget(self, wanted: Wanted, flight: _Flight) -> None:
        if self._flights.get(wanted) is flight:
            del self._flights[wanted]
