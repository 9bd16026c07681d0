"""Takes the small pictures of the pages: `python -m tests.gateway.pages.pictures FOLDER` on a gateway of `stoop up`.

The gateway's address is the variable STOOP_GATEWAY, by default that of `stoop up`. Needs Chromium.
"""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from stoop.demo.pictures import draw_pictures
from tests.gateway.pages.conftest import open_browser

__all__ = ["take"]

_SIZES = {"wide": (1200, 860), "narrow": (390, 844)}


async def take(address: str, folder: Path) -> None:
    """Write one PNG for each page, scheme and width into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for scheme in ("light", "dark"):
        async with open_browser(color_scheme=scheme) as page:
            await _ask(page, address)
            await _shoot(page, folder / f"playground-{scheme}")
            await page.goto(f"{address}/dashboard")
            await page.locator(".spark .line").nth(2).wait_for(state="attached")
            await _shoot(page, folder / f"dashboard-{scheme}")


async def _ask(page: Any, address: str) -> None:
    [picture] = draw_pictures(1, seed=1)
    await page.goto(address)
    await page.set_input_files("#file", {"name": "shapes.png", "mimeType": "image/png", "buffer": picture.encoded})
    await page.get_by_label("Question").fill("How many shapes are there?")
    await page.get_by_role("button", name="Ask").click()
    await page.locator("#metrics dd").first.wait_for()
    await page.get_by_text("detect", exact=True).click()
    await page.get_by_label("Find every").fill(picture.shapes[0].name)
    await page.get_by_role("button", name="Ask").click()
    await page.locator("#metrics dd").first.wait_for()


async def _shoot(page: Any, stem: Path) -> None:
    for name, (width, height) in _SIZES.items():
        await page.set_viewport_size({"width": width, "height": height})
        await page.screenshot(path=stem.with_name(f"{stem.name}-{name}.png"), full_page=name == "narrow")


if __name__ == "__main__":
    asyncio.run(take(os.environ.get("STOOP_GATEWAY", "http://127.0.0.1:8000"), Path(sys.argv[1])))
