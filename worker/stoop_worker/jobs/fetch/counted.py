"""Counts fetched bytes and failures."""

from dataclasses import dataclass
from typing import Protocol

from stoop_worker.errors import WorkerError
from stoop_worker.jobs.outcome import code_of
from stoop_worker.metrics import Metrics

__all__ = ["CountedFetcher"]


class _Fetcher(Protocol):
    async def fetch(self, image_uri: str, tenant: str | None = None, priority: int = 0) -> bytes: ...


@dataclass(frozen=True, slots=True)
class CountedFetcher:
    """A fetcher whose work the metrics count."""

    fetcher: _Fetcher
    metrics: Metrics

    async def fetch(self, image_uri: str, tenant: str | None = None, priority: int = 0) -> bytes:
        """Return the encoded image; raises an `ImageError`."""
        try:
            encoded = await self.fetcher.fetch(image_uri, tenant, priority)
        except WorkerError as error:
            self.metrics.fetch_failed(code_of(error).value)
            raise
        self.metrics.fetched(len(encoded))
        return encoded
