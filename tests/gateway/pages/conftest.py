"""A real browser that accepts no complaint: no error on its console, and no breach of a page's policy."""

import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

__all__ = ["CHROMIUMS", "Browsing", "browsing", "open_browser"]

CHROMIUMS = ("/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome")
_CAMERA = ["--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"]
_FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-proxy-server", *_CAMERA]

# keeps every breach of the policy, which the console shows in words only
_WATCH = "document.addEventListener('securitypolicyviolation', (e) => console.error('CSP: ' + e.violatedDirective));"

Browsing = Callable[..., Any]


@contextlib.asynccontextmanager
async def open_browser(**options: Any) -> AsyncIterator[Any]:
    """A page in a fresh browser; skips the test where there is no Chromium. `options` are those of a context."""
    playwright = pytest.importorskip("playwright.async_api")
    chromium = next((path for path in map(Path, CHROMIUMS) if path.exists()), None)
    if chromium is None:
        pytest.skip("no Chromium on this machine")
    async with playwright.async_playwright() as drivers:
        browser = await drivers.chromium.launch(executable_path=str(chromium), args=_FLAGS)
        context = await browser.new_context(viewport={"width": 1200, "height": 900}, **options)
        context.set_default_timeout(20_000)
        await context.add_init_script(_WATCH)
        yield await context.new_page()
        await browser.close()


@pytest.fixture
def browsing() -> Browsing:
    """`async with browsing(ignored=…) as page`: fails the test for a complaint that holds none of `ignored`."""

    @contextlib.asynccontextmanager
    async def browsing(*ignored: str, **options: Any) -> AsyncIterator[Any]:
        complaints: list[str] = []
        async with open_browser(**options) as page:
            page.on("pageerror", lambda error: complaints.append(str(error)))
            page.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
            yield page
        assert [each for each in complaints if not any(word in each for word in ignored)] == []

    return browsing
