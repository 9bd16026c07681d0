"""Builds the parts that fetch adapters, if these come from an address."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from stoop_schemas.allowed import AllowedBuckets
from stoop_worker.config import WorkerConfig
from stoop_worker.errors import ConfigError
from stoop_worker.jobs.adapters import AdapterCache
from stoop_worker.jobs.fetch.adapter_source import AdapterSource, hub_file
from stoop_worker.jobs.fetch.fetcher import Fetcher
from stoop_worker.jobs.fetch.https import HttpsConfig, HttpsFetcher
from stoop_worker.media_parts import store_of

__all__ = ["adapter_settings", "running_adapters"]

_RESIDENT: Final = 8
_SECONDS: Final = 300.0  # an adapter has up to a gigabyte
_CONCURRENCY: Final = 4
_LARGEST: Final = 1 << 30


def adapter_settings(config: WorkerConfig) -> dict[str, Any]:
    """Return the engine's settings for adapters; an address becomes the folder that adapters are fetched into.

    Raises `ConfigError` if that folder cannot be made.
    """
    if config.adapters is None:
        return {"adapters": None}
    if not config.fetches_adapters:
        return {"adapters": Path(config.adapters)}
    folder = _folder(config)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--adapter-cache (STOOP_ADAPTER_CACHE) {folder}: {error.strerror}") from error
    return {"adapters": folder, "resident_adapters": config.resident_adapters or _RESIDENT}


@contextlib.asynccontextmanager
async def running_adapters(config: WorkerConfig) -> AsyncIterator[AdapterCache | None]:
    """Build the parts for a worker, and end their threads with the `with`; None if no adapter is fetched."""
    if config.adapters is None or not config.fetches_adapters:
        yield None
        return
    largest = min(config.adapter_cache_bytes, _LARGEST)
    # the operator named the bucket, so the rules for jobs' own addresses do not apply
    store = replace(
        store_of(config, largest),
        max_bytes=largest,
        timeout=_SECONDS,
        allowed=AllowedBuckets(),
        concurrency=_CONCURRENCY,
    )
    plain = HttpsConfig(max_bytes=largest, timeout=_SECONDS, accept="*/*")
    async with Fetcher(store) as fetcher:
        source = AdapterSource(
            config.adapters,
            s3=fetcher.fetch,
            https=HttpsFetcher(replace(plain, header=_header(config))).fetch,
            linked=HttpsFetcher(plain).fetch,
            hub=hub_file,
        )
        resident = config.resident_adapters or _RESIDENT
        yield AdapterCache(source, _folder(config), max_bytes=config.adapter_cache_bytes, resident=resident)


def _folder(config: WorkerConfig) -> Path:
    return config.adapter_cache.expanduser()


def _header(config: WorkerConfig) -> tuple[str, str] | None:
    if config.adapter_header is None:
        return None
    name, _, value = config.adapter_header.get_secret_value().partition(":")
    return name.strip(), value.strip()
