import asyncio
import io

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image as Pillow

from stoop_worker.errors import ImageNotFound, ImageTooLarge
from stoop_worker.images import (
    CropGeometry,
    Crops,
    Image,
    ImageLimits,
    Jpeg,
    PatchRule,
    PixelLimits,
    bytes_of_picture,
    fitting_size,
    image_pool,
)
from stoop_worker.jobs.budget import Budget
from stoop_worker.jobs.prepare import Budgets, ImagePreparer, Images, Prepared, WantedImage


class HeldStore:
    """A store and a preparer in one, which work when the test releases them."""

    def __init__(self) -> None:
        self.fetched: list[str] = []
        self.decoded: list[str] = []
        self.fetching = asyncio.Event()
        self.decoding = asyncio.Event()
        self.fetching.set()
        self.decoding.set()
        self.fails: Exception | None = None

    async def fetch(self, image_uri: str, tenant: str | None = None, priority: int = 0) -> bytes:
        self.fetched.append(image_uri)
        await self.fetching.wait()
        if self.fails:
            raise self.fails
        return image_uri.encode()

    async def measure(self, encoded: bytes) -> int:
        return 300

    async def prepare(self, encoded: bytes, pixels: PixelLimits) -> Image:
        self.decoded.append(encoded.decode())
        await self.decoding.wait()
        return Image(np.zeros((10, 10, 3), dtype=np.uint8), encoded)


class ImageJobs:
    """Jobs that use images of one store, until the test ends them."""

    def __init__(self, **amounts: int) -> None:
        self.room = HeldStore()
        given = {"encoded": 1000, "threads": 8, "pixels": 10_000, **amounts}
        self.budgets = Budgets(Budget(given["encoded"]), Budget(given["threads"]), Budget(given["pixels"]), largest=100)
        self.images = Images(self.room, self.room, self.budgets)
        self.ready: dict[str, Prepared] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.ends: dict[str, asyncio.Event] = {}

    async def job(self, name: str, address: str, *, priority: int = 0, submitted: float | None = None) -> None:
        self.ends[name] = asyncio.Event()
        when = asyncio.get_running_loop().time() if submitted is None else submitted
        self.tasks[name] = asyncio.create_task(self._use(name, WantedImage(address, None, priority), when))
        await settled()

    async def end(self, *names: str) -> None:
        for name in names:
            self.ends[name].set()
        await settled()

    async def _use(self, name: str, wanted: WantedImage, submitted: float) -> None:
        async with self.images.prepared(wanted, submitted) as ready:
            self.ready[name] = ready
            await self.ends[name].wait()


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_jobs_of_one_burst_share_one_fetch_and_one_decoding() -> None:
    image_jobs = ImageJobs()
    jobs = [asyncio.create_task(image_jobs.job(str(number), "s3://b/same", submitted=0.0)) for number in range(50)]
    await asyncio.gather(*jobs)
    assert (image_jobs.room.fetched, image_jobs.room.decoded) == (["s3://b/same"], ["s3://b/same"])
    assert len({id(ready.image) for ready in image_jobs.ready.values()}) == 1
    assert len(image_jobs.ready) == 50
    assert image_jobs.budgets.pixels.lent == 300
    await image_jobs.end(*(str(number) for number in range(49)))
    assert image_jobs.budgets.pixels.lent == 300, "the last job may still need it"
    await image_jobs.end("49")
    assert image_jobs.budgets.pixels.lent == 0


async def test_an_object_that_was_fetched_before_a_job_was_submitted_is_fetched_again() -> None:
    image_jobs = ImageJobs()
    await image_jobs.job("before", "s3://b/key")
    await image_jobs.job("waited in the queue", "s3://b/key", submitted=0.0)
    assert len(image_jobs.room.fetched) == 1
    await image_jobs.job("after", "s3://b/key")
    assert len(image_jobs.room.fetched) == 2


@pytest.mark.parametrize("other", [WantedImage("s3://b/key", "acme", 0), WantedImage("s3://b/key", None, 1)])
async def test_tenants_and_priorities_share_nothing(other: WantedImage) -> None:
    image_jobs = ImageJobs()
    await image_jobs.job("one", "s3://b/key", submitted=0.0)
    async with image_jobs.images.prepared(other, 0.0):
        assert len(image_jobs.room.fetched) == 2


async def test_undecoded_bytes_stay_within_the_budget() -> None:
    image_jobs = ImageJobs(encoded=250, threads=1)
    image_jobs.room.fetching.clear()
    image_jobs.room.decoding.clear()
    for number in range(10):
        await image_jobs.job(str(number), f"s3://b/{number}")
    assert len(image_jobs.room.fetched) == 2, "each may turn out to have 100 bytes"
    image_jobs.room.fetching.set()
    await settled()
    assert len(image_jobs.room.fetched) == 10, "they had 8"
    assert image_jobs.budgets.encoded.peak <= 250
    image_jobs.room.decoding.set()
    await settled()
    assert len(image_jobs.ready) == 10
    assert image_jobs.budgets.encoded.lent == 0


async def test_pixels_in_memory_stay_within_the_budget_until_jobs_end() -> None:
    image_jobs = ImageJobs(pixels=700)
    for number in range(10):
        await image_jobs.job(str(number), f"s3://b/{number}")
    assert sorted(image_jobs.ready) == ["0", "1"]
    await image_jobs.end("0")
    assert sorted(image_jobs.ready) == ["0", "1", "2"]
    for number in range(1, 10):
        await image_jobs.end(str(number))
    assert (image_jobs.budgets.pixels.peak, image_jobs.budgets.pixels.lent) == (600, 0)


async def test_an_image_larger_than_every_budget_passes_alone() -> None:
    image_jobs = ImageJobs(encoded=50, pixels=200)
    await image_jobs.job("one", "s3://b/1")
    await image_jobs.job("other", "s3://b/2")
    assert list(image_jobs.ready) == ["one"]
    await image_jobs.end("one")
    assert list(image_jobs.ready) == ["one", "other"]


async def test_an_earlier_priority_is_decoded_first() -> None:
    image_jobs = ImageJobs(threads=1)
    image_jobs.room.decoding.clear()
    for name, priority in (("first", 1), ("bulk", 1), ("urgent", 0)):
        await image_jobs.job(name, f"s3://b/{name}", priority=priority)
    image_jobs.room.decoding.set()
    await settled()
    assert image_jobs.room.decoded == ["s3://b/first", "s3://b/urgent", "s3://b/bulk"]


async def test_an_image_that_cannot_be_had_is_so_for_all_that_share_it_and_tried_again_later() -> None:
    image_jobs = ImageJobs()
    image_jobs.room.fails = ImageNotFound("nothing there")
    jobs = [asyncio.create_task(image_jobs.job(name, "s3://b/key", submitted=0.0)) for name in "ab"]
    await asyncio.gather(*jobs)
    for name in "ab":
        with pytest.raises(ImageNotFound):
            await image_jobs.tasks[name]
    image_jobs.room.fails = None
    await image_jobs.job("again", "s3://b/key", submitted=0.0)
    assert list(image_jobs.ready) == ["again"]
    assert (len(image_jobs.room.fetched), image_jobs.budgets.encoded.lent) == (2, 0)


@pytest.mark.parametrize("stage", ["fetching", "decoding"])
async def test_one_job_may_leave_and_the_others_go_on(stage: str) -> None:
    image_jobs = ImageJobs()
    getattr(image_jobs.room, stage).clear()
    jobs = [asyncio.create_task(image_jobs.job(name, "s3://b/key", submitted=0.0)) for name in "ab"]
    await asyncio.gather(*jobs)
    image_jobs.tasks["a"].cancel()
    await settled()
    getattr(image_jobs.room, stage).set()
    await settled()
    assert list(image_jobs.ready) == ["b"]


@pytest.mark.parametrize("stage", ["fetching", "decoding"])
async def test_an_image_that_no_job_needs_any_more_is_dropped(stage: str) -> None:
    image_jobs = ImageJobs()
    getattr(image_jobs.room, stage).clear()
    await image_jobs.job("a", "s3://b/key")
    assert image_jobs.budgets.encoded.lent
    image_jobs.tasks["a"].cancel()
    await settled()
    assert (image_jobs.budgets.encoded.lent, image_jobs.budgets.threads.lent, image_jobs.budgets.pixels.lent) == (
        0,
        0,
        0,
    )


async def use_all(image_jobs: ImageJobs, addresses: list[str], used: asyncio.Event, end: asyncio.Event) -> list[bytes]:
    wanted = [WantedImage(address, None, 0) for address in addresses]
    async with image_jobs.images.prepared_all(wanted, 0.0) as ready:
        used.set()
        await end.wait()
        return [each.image.digest for each in ready]


async def test_the_images_of_a_job_come_in_their_order_and_are_held_until_it_ends() -> None:
    image_jobs, used, end = ImageJobs(), asyncio.Event(), asyncio.Event()
    using = asyncio.create_task(use_all(image_jobs, ["s3://b/1", "s3://b/2", "s3://b/1"], used, end))
    await used.wait()
    assert image_jobs.budgets.pixels.lent == 600
    end.set()
    assert await using == [b"s3://b/1", b"s3://b/2", b"s3://b/1"]
    await settled()
    assert image_jobs.budgets.pixels.lent == 0


async def test_jobs_with_several_images_do_not_deadlock() -> None:
    image_jobs = ImageJobs(pixels=8 * 900)
    ends = [asyncio.Event() for _ in range(40)]
    jobs = [
        asyncio.create_task(
            use_all(image_jobs, [f"s3://b/{number}/{image}" for image in range(3)], asyncio.Event(), end)
        )
        for number, end in enumerate(ends)
    ]
    for end in ends:
        end.set()
    assert len(await asyncio.wait_for(asyncio.gather(*jobs), 30)) == 40


async def test_a_job_whose_images_take_more_than_its_share_is_refused_and_gives_all_back() -> None:
    image_jobs = ImageJobs(pixels=8 * 700)
    with pytest.raises(ImageTooLarge, match="send fewer or smaller ones"):
        await use_all(image_jobs, [f"s3://b/{number}" for number in range(3)], asyncio.Event(), asyncio.Event())
    await settled()
    assert image_jobs.budgets.pixels.lent == 0


async def test_an_image_that_the_device_resizes_is_whole_in_the_given_memory() -> None:
    given: list[npt.NDArray[np.uint8]] = []

    def allocate(shape: tuple[int, ...]) -> npt.NDArray[np.uint8]:
        given.append(np.empty(shape, dtype=np.uint8))
        return given[-1]

    pixels = np.random.default_rng(1).integers(0, 256, (300, 420, 3), dtype=np.uint8)
    encoded = io.BytesIO()
    Pillow.fromarray(pixels).save(encoded, "PNG")
    with image_pool(1) as pool:
        preparer = ImagePreparer(pool, ImageLimits(), PatchRule(), allocate, on_device=True)
        image = await preparer.prepare(encoded.getvalue())
    assert isinstance(image, Image)
    assert image.pixels is given[-1] and np.array_equal(image.pixels, pixels)
    assert image.size == fitting_size(300, 420, PatchRule())


@pytest.mark.parametrize("name", ["a small photo", "a large photo"])
async def test_a_photo_that_the_device_decodes_counts_by_its_own_bytes(name: str) -> None:
    side, quality = (40, 80) if name == "a small photo" else (700, 100)
    pixels = np.random.default_rng(1).integers(0, 256, (side, side, 3), dtype=np.uint8)
    encoded = io.BytesIO()
    Pillow.fromarray(pixels).save(encoded, "JPEG", quality=quality)
    with image_pool(1) as pool:
        preparer = ImagePreparer(pool, ImageLimits(), None, on_device=True, jpegs_on_device=True)
        image = await preparer.prepare(encoded.getvalue())
        cut_here = await ImagePreparer(pool, ImageLimits(), CropGeometry(), jpegs_on_device=True).prepare(
            encoded.getvalue()
        )
    assert isinstance(image, Jpeg) and image.size == (side, side)
    assert bytes_of_picture(image).nbytes == len(encoded.getvalue())
    assert isinstance(cut_here, Crops)  # for a model whose images the front cuts
