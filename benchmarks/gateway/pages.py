"""The pages in Chromium: first paint and bytes, many dead letters, and the cost of many viewers to Redis."""

import asyncio
import json
import statistics
import time
from collections.abc import Awaitable
from typing import Any, Final

import httpx
from playwright.async_api import Page
from redis.asyncio import Redis

from benchmarks.gateway.stack import Stack
from stoop_schemas import names
from tests.support.browser import open_browser

__all__ = ["measure_pages"]

_OPENINGS: Final = 9
_VIEWERS: Final = (1, 100)
_SECONDS: Final = 10.0

_PAINTED = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"
_BYTES = """performance.getEntriesByType('navigation').concat(performance.getEntriesByType('resource'))
  .filter((entry) => !entry.name.includes('/v1/')).reduce((sum, entry) => sum + entry.transferSize, 0)"""


async def measure_pages(stack: Stack, letters: int) -> dict[str, Any]:
    """Return first paints (ms), bytes, seconds for the dead letters, and looks at the queue a second."""
    address = f"http://{stack.host}:{stack.port}"
    async with Redis.from_url(stack.config.redis_url.get_secret_value(), protocol=2) as redis:
        return {
            "playground": await _first_paint(f"{address}/"),
            "dashboard": await _first_paint(f"{address}/dashboard"),
            f"{letters} letters, seconds": await _letters(redis, address, letters),
            "looks at the queue a second": {count: await _viewers(redis, address, count) for count in _VIEWERS},
        }


async def _first_paint(address: str) -> dict[str, float]:
    """Open the page in a fresh browser each time; nothing is cached."""
    paints, size = [], 0
    for _ in range(_OPENINGS):
        async with open_browser() as page:
            await page.goto(address, wait_until="networkidle" if address.endswith("/") else "load")
            while (painted := await page.evaluate(_PAINTED)) is None:
                await asyncio.sleep(0.01)
            paints.append(painted)
            size = await page.evaluate(_BYTES)
    return {"median ms": statistics.median(paints), "worst ms": max(paints), "bytes": size}


async def _letters(redis: Any, address: str, count: int) -> dict[str, float]:
    await _bury(redis, count)
    async with open_browser() as page:
        opened = await _timed(_until(page.goto(f"{address}/dashboard"), page, "#causes li"))
        listed = await _timed(_until(page.get_by_role("button", name="Show: ").click(), page, "#letters tr"))
        counted = await _timed(_until(page.get_by_role("button", name="Purge all").click(), page, "#confirm[open]"))
        purged = await _timed(_until(page.locator("#confirm-yes").click(), page, "#dead-done:not(:empty)"))
    assert await redis.xlen(names.dead()) == 0
    return {"opened and grouped": opened, "listed": listed, "counted for a purge": counted, "purged": purged}


async def _bury(redis: Any, count: int) -> None:
    pipe = redis.pipeline(transaction=False)
    for number in range(count):
        failure = {"code": "attempts_exhausted", "message": f"s3://photos/{number}.jpg timed out after {number} s"}
        job = {"v": 1, "id": names.new_id(), "skill": "query", "question": "What is this?"}
        letter = {"id": job["id"], "lane": "bulk", "attempt": 3, "failure": json.dumps(failure), "j": json.dumps(job)}
        pipe.xadd(names.dead(), letter)
    await pipe.execute()


async def _until(act: Awaitable[Any], page: Page, selector: str) -> None:
    await act
    await page.locator(selector).first.wait_for(timeout=120_000)


async def _timed(work: Awaitable[None]) -> float:
    began = time.perf_counter()
    await work
    return round(time.perf_counter() - began, 2)


async def _viewers(redis: Any, address: str, count: int) -> float:
    """Open the dashboard's stream many times, and count looks by Redis's HLEN, which only a look calls."""
    watching = asyncio.Semaphore(0)

    async def view(http: httpx.AsyncClient) -> None:
        async with http.stream("GET", "/v1/queue/events") as response:
            async for line in response.aiter_lines():
                if line.startswith("data:"):
                    watching.release()

    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=address, trust_env=False, timeout=60, limits=limits) as http:
        tasks = [asyncio.create_task(view(http)) for _ in range(count)]
        for _ in range(count):
            await watching.acquire()
        before, began = await _looks(redis), time.perf_counter()
        await asyncio.sleep(_SECONDS)
        looks = (await _looks(redis) - before) / (time.perf_counter() - began)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    return round(looks, 2)


async def _looks(redis: Any) -> int:
    return int((await redis.info("commandstats")).get("cmdstat_hlen", {}).get("calls", 0))
