"""The job of a request to `LocalEngine`."""

from typing import Any

import pytest

from stoop_schemas.failure import Rejected
from stoop_worker.local.job import local_job


def pixels(detail: str, settings: dict[str, Any] | None = None) -> int | None:
    shown = {"type": "image_url", "image_url": {"url": "cat.jpg", "detail": detail}}
    return local_job("chat", None, settings, {"messages": [{"role": "user", "content": [shown]}]}).settings.max_pixels


def test_low_detail_makes_images_as_small_as_over_http() -> None:
    assert pixels("low") == pixels("low", {"max_pixels": None}) == 512 * 512
    assert pixels("low", {"max_pixels": 65536}) == 65536
    assert pixels("high") is None
    with pytest.raises(Rejected, match="detail of an image"):
        pixels("tiny")
