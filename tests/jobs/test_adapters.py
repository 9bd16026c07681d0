"""The cache of adapters: one fetch each, a bound on its size, and a bound on the adapters in use."""

import asyncio
import errno
import os
import threading
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from stoop_schemas.failure import FailureCode, Rejected
from stoop_worker.jobs.adapters import AdapterCache


class Source:
    """Adapters of 100 bytes each; a fetch waits while `open` is not set."""

    def __init__(self) -> None:
        self.fetched: list[str] = []
        self.open = asyncio.Event()
        self.open.set()
        self.asked = asyncio.Event()

    async def fetch(self, adapter: str) -> bytes:
        self.fetched.append(adapter)
        self.asked.set()
        await self.open.wait()
        if adapter == "gone":
            raise Rejected(FailureCode.INVALID_ARGUMENT, "there is no adapter 'gone'")
        return (b"PK" if adapter == "torch" else b"").ljust(100, b"x")


@pytest.fixture
async def source() -> Source:
    return Source()


def cache(source: Source, folder: Path, *, max_bytes: int = 250, resident: int = 8) -> AdapterCache:
    return AdapterCache(source, folder / "adapters", max_bytes=max_bytes, resident=resident)


def there(folder: Path) -> set[str]:
    return {path.name for path in (folder / "adapters").iterdir()}


async def use(cache: AdapterCache, *adapters: str | None) -> None:
    for adapter in adapters:
        async with cache.ready(adapter):
            pass


async def test_an_adapter_is_fetched_once_and_named_by_its_format(source: Source, tmp_path: Path) -> None:
    held = cache(source, tmp_path)
    await use(held, "cats", None, "cats", "torch", "cats")
    assert source.fetched == ["cats", "torch"]
    assert there(tmp_path) == {"cats.safetensors", "torch.pt"}


async def test_jobs_that_come_during_the_fetch_share_it(source: Source, tmp_path: Path) -> None:
    held = cache(source, tmp_path)
    source.open.clear()
    jobs = [asyncio.create_task(use(held, "cats")) for _ in range(5)]
    await source.asked.wait()
    jobs[0].cancel()
    source.open.set()
    ends = await asyncio.gather(*jobs, return_exceptions=True)
    assert [type(end) for end in ends] == [asyncio.CancelledError, *[type(None)] * 4]
    assert source.fetched == ["cats"]


async def test_the_one_used_longest_ago_makes_room(source: Source, tmp_path: Path) -> None:
    held = cache(source, tmp_path)
    await use(held, "cats", "dogs")
    for age, adapter in enumerate(("cats", "dogs")):  # the clock of a file system may be coarse
        os.utime(tmp_path / "adapters" / f"{adapter}.safetensors", (age, age))
    await use(held, "cats", "birds")
    assert there(tmp_path) == {"cats.safetensors", "birds.safetensors"}


async def test_an_adapter_in_use_stays_however_old(source: Source, tmp_path: Path) -> None:
    held = cache(source, tmp_path, max_bytes=150)
    async with held.ready("cats"):
        await use(held, "dogs", "birds")
        assert there(tmp_path) == {"cats.safetensors", "birds.safetensors"}


async def test_a_broken_adapter_fails_its_job_and_gives_its_place_back(source: Source, tmp_path: Path) -> None:
    held = cache(source, tmp_path, resident=1)
    for _ in range(2):
        with pytest.raises(Rejected, match="no adapter 'gone'"):
            await use(held, "gone")
    await use(held, "cats")
    assert source.fetched == ["gone", "gone", "cats"]


async def test_one_larger_than_the_cache_is_refused_with_the_flag(source: Source, tmp_path: Path) -> None:
    with pytest.raises(Rejected, match="--adapter-cache-bytes") as raised:
        await use(cache(source, tmp_path, max_bytes=99), "cats")
    assert raised.value.failure.code is FailureCode.INVALID_ARGUMENT


async def test_jobs_of_more_adapters_than_fit_wait_for_one(source: Source, tmp_path: Path) -> None:
    held = cache(source, tmp_path, resident=2, max_bytes=1000)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(held.ready("cats"))
        await stack.enter_async_context(held.ready("dogs"))
        third = asyncio.create_task(use(held, "birds"))
        abandoned = asyncio.create_task(use(held, "fish"))
        await use(held, "cats")  # the same adapter needs no other place
        assert source.fetched == ["cats", "dogs"] and not third.done()
        abandoned.cancel()
        await asyncio.wait({abandoned})
    await third
    assert source.fetched == ["cats", "dogs", "birds"]
    async with held.ready("cats"), held.ready("dogs"):  # every place came back
        pass


async def test_a_job_cancelled_during_its_fetch_gives_its_place_back(source: Source, tmp_path: Path) -> None:
    held = cache(source, tmp_path, resident=1)
    source.open.clear()
    job = asyncio.create_task(use(held, "cats"))
    await source.asked.wait()
    job.cancel()
    await asyncio.wait({job})
    source.open.set()
    await use(held, "dogs")
    assert there(tmp_path) == {"dogs.safetensors"}


async def test_an_adapter_that_a_job_has_just_found_does_not_make_room(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = cache(source, tmp_path, max_bytes=150)
    await use(held, "cats")
    loop, making, go_on = asyncio.get_running_loop(), asyncio.Event(), threading.Event()
    make_room = held._make_room

    def slow(most: int, in_use: frozenset[str]) -> None:
        loop.call_soon_threadsafe(making.set)
        go_on.wait(60)
        make_room(most, in_use)

    monkeypatch.setattr(held, "_make_room", slow)
    birds = asyncio.create_task(use(held, "birds"))
    await making.wait()
    loop.call_later(0, go_on.set)
    async with held.ready("cats"):
        await birds
        assert "cats.safetensors" in there(tmp_path)


async def test_a_file_that_cannot_be_kept_leaves_nothing_behind(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(Path, "replace", full)
        with pytest.raises(Rejected, match="cannot be kept: No space left"):
            await use(cache(source, tmp_path), "cats")
    assert there(tmp_path) == set()
