"""A real browser."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

__all__ = ["open_browser"]

_CHROMIUMS = ("/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome")
_CAMERA = ["--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"]
_FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-proxy-server", *_CAMERA]

# keeps every breach of the policy, which the console shows in words only
_WATCH = "document.addEventListener('securitypolicyviolation', (e) => console.error('CSP: ' + e.violatedDirective));"


@contextlib.asynccontextmanager
async def open_browser(**options: Any) -> AsyncIterator[Any]:
    """A page in a fresh browser; skips the test where there is no Chromium. `options` are those of a context."""
    playwright = pytest.importorskip("playwright.async_api")
    chromium = next((path for path in map(Path, _CHROMIUMS) if path.exists()), None)
    if chromium is None:
        pytest.skip("no Chromium on this machine")
    async with playwright.async_playwright() as drivers:
        browser = await drivers.chromium.launch(executable_path=str(chromium), args=_FLAGS)
        context = await browser.new_context(viewport={"width": 1200, "height": 900}, **options)
        context.set_default_timeout(20_000)
        await context.add_init_script(_WATCH)
        yield await context.new_page()
        await browser.close()
