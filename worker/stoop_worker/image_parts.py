"""Builds what brings images in: the fetcher, the threads that decode, and the budgets of both."""

import contextlib
import os
from collections.abc import Iterator

from stoop_worker.audio import MelGeometry
from stoop_worker.config import WorkerConfig
from stoop_worker.engine_process.pixels import SharedPixels
from stoop_worker.engine_process.protocol import Ready
from stoop_worker.images import CropGeometry, ImageLimits, Preparation, image_pool
from stoop_worker.jobs.budget import Budget
from stoop_worker.jobs.fetch.counted import CountedFetcher
from stoop_worker.jobs.fetch.fetcher import FetchConfig, Fetcher
from stoop_worker.jobs.fetch.https import HttpsConfig, HttpsFetcher
from stoop_worker.jobs.prepare import Budgets, ImagePreparer, Images
from stoop_worker.metrics import Metrics

__all__ = ["running_images", "store_of"]

_MOST_THREADS = 8
_RESERVED_SHARE = 8  # one byte of this number is reserved for the first lane


@contextlib.contextmanager
def running_images(
    config: WorkerConfig, ready: Ready, shared_pixels: SharedPixels, metrics: Metrics
) -> Iterator[Images]:
    """Build the parts for a worker whose engine is ready, and end their threads with the `with`."""
    # one thread more than decode bulk images: the first lane never waits for the end of one
    reserved = int(len(config.lanes) > 1)
    threads = (config.image_threads or _image_threads()) + reserved
    limits = ImageLimits(max_bytes=config.max_image_bytes, max_pixels=config.max_image_pixels)
    with (
        image_pool(threads) as pool,
        Fetcher(store_of(config), https=_https(config)) as fetcher,
    ):
        preparer = ImagePreparer(pool, limits, _preparation(ready), shared_pixels.empty)
        budgets = Budgets(
            encoded=Budget(config.max_fetched_bytes, reserved=config.max_fetched_bytes // _RESERVED_SHARE),
            threads=Budget(threads, reserved=reserved),
            pixels=Budget(config.max_decoded_bytes, reserved=config.max_decoded_bytes // _RESERVED_SHARE),
            largest=config.max_image_bytes,
        )
        yield Images(CountedFetcher(fetcher, metrics), preparer, budgets)


def _preparation(ready: Ready) -> Preparation:
    """Leave the cutting into crops to a GPU; a model of speech takes no images."""
    cuts_there = ready.device != "cpu" and isinstance(ready.preparation, CropGeometry)
    return None if cuts_there or isinstance(ready.preparation, MelGeometry) else ready.preparation


def _image_threads() -> int:
    """Use the cores this process may use, but not all of a large machine: each thread may hold a whole image."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, _MOST_THREADS)


def store_of(config: WorkerConfig) -> FetchConfig:
    """Return the object store and its limits on one image."""
    return FetchConfig(
        endpoint=config.s3_endpoint,
        region=config.s3_region,
        path_style=config.s3_path_style,
        allowed=config.allowed,
        max_bytes=config.max_image_bytes,
        timeout=config.fetch_timeout_seconds,
        concurrency=config.fetch_concurrency,
    )


def _https(config: WorkerConfig) -> HttpsFetcher | None:
    if not config.allow_https:
        return None
    return HttpsFetcher(
        HttpsConfig(
            hosts=config.https_hosts,
            max_bytes=config.max_image_bytes,
            timeout=config.fetch_timeout_seconds,
        )
    )
