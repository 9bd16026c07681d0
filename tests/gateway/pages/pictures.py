"""Takes the pictures of the pages that the README shows: `python -m tests.gateway.pages.pictures FOLDER [--all]`.

Run it on a fresh gateway of `stoop up`. The gateway's address is the variable STOOP_GATEWAY, by default that of
`stoop up`. It needs Chromium. It writes `answer.webp`, an answer as it streams, three times slower than it came,
`dashboard-light.webp` and `dashboard-dark.webp`. With `--all` it instead writes each page in both schemes, wide and
narrow, for a look at them.
"""

import asyncio
import contextlib
import io
import itertools
import os
import re
import sys
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import httpx
from PIL import Image
from playwright.async_api import expect

from stoop.demo.pictures import Picture, draw_pictures
from tests.support.browser import open_browser

__all__ = ["take", "take_all"]

_SIZES = {"wide": (1200, 860), "narrow": (390, 844)}
_SLOWER = 3
_HOLD = 2500
_LOOKS = 25

Frame = tuple[bytes, float]


async def take(address: str, folder: Path) -> None:
    """Write the pictures of the README into the folder."""
    async with open_browser() as page:
        await page.set_viewport_size({"width": 1000, "height": 620})
        _animate(await _film(page, address), folder / "answer.webp")
    for scheme in ("light", "dark"):
        async with open_browser(color_scheme=scheme) as page, _load(address):
            await page.set_viewport_size({"width": 1000, "height": 620})
            await _watch(page, address)
            _still(await page.screenshot(), folder / f"dashboard-{scheme}.webp")


async def take_all(address: str, folder: Path) -> None:
    """Write one picture for each page, scheme and width."""
    for scheme in ("light", "dark"):
        async with open_browser(color_scheme=scheme) as page, _load(address):
            await _film(page, address)
            await _shoot(page, folder / f"playground-{scheme}")
            await page.get_by_text("chat", exact=True).click()
            await _send(page, "How many shapes are in this picture?")
            await _shoot(page, folder / f"chat-{scheme}")
            await _watch(page, address)
            await _shoot(page, folder / f"dashboard-page-{scheme}")


def _picture() -> Picture:
    return draw_pictures(1, seed=5)[0]


async def _film(page: Any, address: str) -> list[Frame]:
    """Ask for a caption and for boxes; return screenshots of the page meanwhile, and their times (s)."""
    picture = _picture()
    frames: list[Frame] = []
    await page.goto(address)
    await page.set_input_files("#file", {"name": "shapes.png", "mimeType": "image/png", "buffer": picture.encoded})
    await page.get_by_text("caption", exact=True).click()
    await page.locator("#length").select_option("long")
    await _ask(page, frames)
    await page.get_by_text("detect", exact=True).click()
    await page.get_by_label("Find every").fill(picture.shapes[0].name)
    await _ask(page, frames)
    return frames


async def _ask(page: Any, frames: list[Frame]) -> None:
    frames.append((await page.screenshot(), time.monotonic()))
    await page.get_by_role("button", name="Ask").click()
    await page.mouse.move(2, 2)
    while not await page.locator("#after").is_visible():
        frames.append((await page.screenshot(), time.monotonic()))
    frames.append((await page.screenshot(), time.monotonic()))


async def _send(page: Any, text: str) -> None:
    await page.get_by_role("textbox", name="Message").fill(text)
    await page.keyboard.press("Enter")
    await page.locator("#metrics dd").first.wait_for()


async def _watch(page: Any, address: str) -> None:
    """Look at the dashboard until its charts have some length."""
    await page.goto(f"{address}/dashboard")
    drawn = re.compile(rf"(L[^L]+){{{_LOOKS}}}")
    await expect(page.locator(".tiles .line").first).to_have_attribute("d", drawn, timeout=60_000)


async def _shoot(page: Any, stem: Path) -> None:
    for name, (width, height) in _SIZES.items():
        await page.set_viewport_size({"width": width, "height": height})
        _still(await page.screenshot(full_page=name == "narrow"), stem.with_name(f"{stem.name}-{name}.webp"))


@contextlib.asynccontextmanager
async def _load(address: str) -> AsyncIterator[None]:
    """Submit jobs to both lanes inside the `with`, now more and now fewer."""

    async def submit(lane: str) -> None:
        async with httpx.AsyncClient(base_url=address, trust_env=False) as http:
            sent = await http.post("/v1/images", content=_picture().encoded, headers={"content-type": "image/png"})
            asked = {"skill": "caption", "image": sent.json()["image"], "lane": lane}
            for number in itertools.count():
                await http.post("/v1/jobs", json={**asked, "settings": {"seed": number}})
                await asyncio.sleep(0.05 if number % 60 < 25 else 0.3)

    tasks = [asyncio.create_task(submit(lane)) for lane in ("interactive", "bulk")]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


def _still(png: bytes, path: Path) -> None:
    _opened(png).save(path, quality=82, method=6)


def _animate(frames: Sequence[Frame], path: Path) -> None:
    """Write an animation; pictures that are the same are shown as one."""
    changed = [frames[0], *(after for before, after in itertools.pairwise(frames) if after[0] != before[0])]
    spans = [_SLOWER * 1000 * (after[1] - before[1]) for before, after in itertools.pairwise(changed)]
    durations = [round(min(_HOLD, span)) for span in spans] + [_HOLD]
    first, *rest = [_opened(png) for png, _ in changed]
    first.save(path, save_all=True, append_images=rest, duration=durations, loop=0, quality=70, method=6)


def _opened(png: bytes) -> Image.Image:
    return Image.open(io.BytesIO(png)).convert("RGB")


if __name__ == "__main__":
    into = Path(sys.argv[1])
    into.mkdir(parents=True, exist_ok=True)
    taking = take_all if "--all" in sys.argv else take
    asyncio.run(taking(os.environ.get("STOOP_GATEWAY", "http://127.0.0.1:8000"), into))
