"""A real browser that accepts no complaint: no error on its console, and no breach of a page's policy."""

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tests.support.browser import open_browser

__all__ = ["Browsing", "browsing"]

Browsing = Callable[..., Any]


@pytest.fixture
def browsing() -> Browsing:
    """`async with browsing(ignored=…) as page`: fails the test for a complaint that holds none of `ignored`."""

    @contextlib.asynccontextmanager
    async def browsing(*ignored: str, **options: Any) -> AsyncIterator[Any]:
        complaints: list[str] = []
        async with open_browser(**options) as page:
            page.on("pageerror", lambda error: complaints.append(str(error)))
            page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
            yield page
        assert [each for each in complaints if not any(word in each for word in ignored)] == []

    return browsing
