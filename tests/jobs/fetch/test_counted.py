"""Fetched bytes and failures are counted."""

import pytest

from stoop_worker.errors import ImageNotFound
from stoop_worker.jobs.fetch.counted import CountedFetcher
from stoop_worker.metrics import Metrics


class Store:
    async def fetch(self, image_uri: str, tenant: str | None = None, priority: int = 0) -> bytes:
        assert (tenant, priority) == ("acme", 1)
        if image_uri != "s3://b/red.png":
            raise ImageNotFound("nothing there")
        return b"12345"


async def test_bytes_are_summed_and_failures_counted_by_their_code() -> None:
    metrics = Metrics()
    counted = CountedFetcher(Store(), metrics)
    for _ in range(2):
        assert await counted.fetch("s3://b/red.png", "acme", 1) == b"12345"
    with pytest.raises(ImageNotFound):
        await counted.fetch("s3://b/gone.png", "acme", 1)
    assert metrics.registry.get_sample_value("stoop_fetch_bytes_total") == 10
    assert metrics.registry.get_sample_value("stoop_fetch_failures_total", {"code": "image_not_found"}) == 1
