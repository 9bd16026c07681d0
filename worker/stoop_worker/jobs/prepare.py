"""Turns a job's image address into the engine's input, within budgets and by priority.

Jobs that want the same image at the same time share one fetch and one decoding.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from stoop_worker.errors import ImageTooLarge
from stoop_worker.images import (
    ANY_PIXELS,
    Allocate,
    CropGeometry,
    ImageLimits,
    PatchRule,
    Picture,
    PixelLimits,
    Preparation,
    bytes_of_picture,
    decoded_bytes,
    left_undecoded,
    load,
    made_ready,
    quickly_decoded_bytes,
)
from stoop_worker.jobs.budget import Budget, Loan
from stoop_worker.jobs.fetch.address import is_inline

__all__ = ["Budgets", "FetchPort", "ImagePreparer", "Images", "Prepared", "PreparerPort", "WantedImage", "on_thread"]

_Value = TypeVar("_Value")


_SEVERAL: Final = 4
"""The most jobs that prepare several images at a time."""


_QUICK_BYTES: Final = 1 << 18
"""A JPEG of this size is passed on within the time that a turn on a thread takes."""


class FetchPort(Protocol):
    """Brings the bytes of an image."""

    async def fetch(self, image_uri: str, tenant: str | None = None, priority: int = 0) -> bytes:
        """Return the encoded image for a job of this tenant; raises an `ImageError`."""


class PreparerPort(Protocol):
    """Makes encoded images ready for the engine."""

    async def measure(self, encoded: bytes) -> int:
        """Return the size of the decoded pixels in bytes; 0 if this is not an image."""

    async def prepare(self, encoded: bytes, pixels: PixelLimits) -> Picture:
        """Load one image, and cut or resize it if the engine wants that.

        Raises `ImageTooLarge` or `ImageUndecodable`.
        """


async def on_thread(pool: Executor, work: Callable[[], _Value], interrupt: Callable[[], None] | None = None) -> _Value:
    """Do the work on a thread. A cancelled caller still waits for the thread, because the work uses the caller's
    memory; `interrupt` is called first and may end the work early.
    """
    running = asyncio.get_running_loop().run_in_executor(pool, work)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        if interrupt is not None:
            interrupt()
        await asyncio.wait({running})
        raise


@dataclass(frozen=True, slots=True)
class ImagePreparer:
    """Loads encoded images for the engine on a pool of threads, under the worker's limits.

    By its `preparation` it cuts them into crops, or resizes them, unless the engine's device resizes (`on_device`);
    without one they stay as they are. The pixels go into the memory that `allocate` returns, which the engine's process
    may share. With `jpegs_on_device` the usual JPEGs go there as they are.
    """

    pool: Executor
    limits: ImageLimits
    preparation: Preparation
    allocate: Allocate | None = None
    on_device: bool = False
    jpegs_on_device: bool = False

    async def measure(self, encoded: bytes) -> int:
        """Return the size of the decoded pixels in bytes; 0 if this is not an image."""
        known = quickly_decoded_bytes(encoded, self.limits)
        if known is not None:
            return known  # a turn on a thread takes a hundred times as long
        return await on_thread(self.pool, lambda: decoded_bytes(encoded, self.limits))

    async def prepare(self, encoded: bytes, pixels: PixelLimits = ANY_PIXELS) -> Picture:
        """Load one image, and cut or resize it; raises `ImageTooLarge` or `ImageUndecodable`."""
        if len(encoded) <= _QUICK_BYTES and (jpeg := self._undecoded(encoded, pixels)) is not None:
            return jpeg
        return await on_thread(self.pool, lambda: self._prepare(encoded, pixels))

    def _undecoded(self, encoded: bytes, pixels: PixelLimits) -> Picture | None:
        if not self.jpegs_on_device or isinstance(self.preparation, CropGeometry):
            return None
        return left_undecoded(encoded, self.limits, self.preparation, self.allocate, pixels=pixels)

    def _prepare(self, encoded: bytes, pixels: PixelLimits) -> Picture:
        if (jpeg := self._undecoded(encoded, pixels)) is not None:
            return jpeg
        stays = self.preparation is None or (self.on_device and isinstance(self.preparation, PatchRule))
        image = load(encoded, self.limits, self.allocate if stays else None)
        return made_ready(image, self.preparation, self.allocate, pixels=pixels, on_device=self.on_device)


@dataclass(frozen=True, slots=True)
class WantedImage:
    """The image, or the recording, of a job. Only jobs of the same tenant, priority and limits share one."""

    address: str
    tenant: str | None
    priority: int
    pixels: PixelLimits = ANY_PIXELS


@dataclass(frozen=True, slots=True)
class Prepared:
    """An image that is ready for the engine, and the times spent on it, in milliseconds."""

    image: Picture
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


class _SharedImage:
    """One image, in preparation or ready, for all jobs that share it."""

    def __init__(self, wanted: WantedImage, parts: "_Parts") -> None:
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

    async def _decode(self, encoded: bytes) -> Picture:
        preparer, budgets, priority = self._parts.preparer, self._parts.budgets, self._wanted.priority
        with await budgets.threads.borrow(1, priority):
            self._pixels = await budgets.pixels.borrow(await preparer.measure(encoded), priority)
            image = await preparer.prepare(encoded, self._wanted.pixels)
        self._pixels.shrink(bytes_of_picture(image).nbytes)
        return image

    def _give_back(self) -> None:
        if self._pixels is not None:
            self._pixels.close()


@dataclass(frozen=True, slots=True)
class _Parts:
    fetcher: FetchPort
    preparer: PreparerPort
    budgets: Budgets


class Images:
    """Prepares images, and keeps each as long as a job uses it."""

    def __init__(self, fetcher: FetchPort, preparer: PreparerPort, budgets: Budgets) -> None:
        self._parts = _Parts(fetcher, preparer, budgets)
        self._shared: dict[WantedImage, _SharedImage] = {}
        self._working: set[asyncio.Task[Prepared]] = set()
        self._several = asyncio.Semaphore(_SEVERAL)

    @contextlib.asynccontextmanager
    async def prepared(self, wanted: WantedImage, submitted: float) -> AsyncIterator[Prepared]:
        """Yield the image once it is ready; raises an `ImageError`.

        `submitted` is the time of the job's submission, by the loop's clock. An image fetched before that time is not
        reused, because the caller may have written the object in between.
        """
        shared = self._shared.get(wanted)
        if shared is None or (shared.began is not None and shared.began < submitted):
            shared = self._shared[wanted] = self._start(wanted)
        shared.users += 1
        try:
            yield await asyncio.shield(shared.work)
        finally:
            shared.users -= 1
            if not shared.users:
                self._forget(wanted, shared)
                shared.end()

    @contextlib.asynccontextmanager
    async def prepared_all(self, wanted: Sequence[WantedImage], submitted: float) -> AsyncIterator[list[Prepared]]:
        """Yield all images of a job, in their order; raises an `ImageError`. See `prepared`.

        A job waits for later images while it holds earlier ones. Only a few jobs at a time may prepare several images,
        so that they cannot deadlock, and none may hold more than its share of the budget.
        """
        if len(wanted) == 1:  # the usual case, without the work for several
            async with self.prepared(wanted[0], submitted) as alone:
                yield [alone]
            return
        async with contextlib.AsyncExitStack() as stack:
            ready: list[Prepared] = []
            async with self._several if wanted else contextlib.nullcontext():
                for each in wanted:
                    ready.append(await stack.enter_async_context(self.prepared(each, submitted)))
                    self._check_share(ready)
            yield ready

    def _check_share(self, ready: Sequence[Prepared]) -> None:
        if len(ready) == 1:
            return
        share = self._parts.budgets.pixels.total // (2 * _SEVERAL)
        held = sum(bytes_of_picture(each.image).nbytes for each in ready)
        if held > share:
            raise ImageTooLarge(
                f"the job's images take more than {share} bytes of pixels together: send fewer or smaller ones"
            )

    def _start(self, wanted: WantedImage) -> _SharedImage:
        shared = _SharedImage(wanted, self._parts)
        self._working.add(shared.work)
        shared.work.add_done_callback(lambda work: self._worked(wanted, shared))
        return shared

    def _worked(self, wanted: WantedImage, shared: _SharedImage) -> None:
        self._working.discard(shared.work)
        if shared.work.cancelled() or shared.work.exception():
            self._forget(wanted, shared)  # a later job tries again

    def _forget(self, wanted: WantedImage, shared: _SharedImage) -> None:
        if self._shared.get(wanted) is shared:
            del self._shared[wanted]
