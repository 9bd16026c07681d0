"""Builds the parts that use the object store: the fetcher, threads that decode, their budgets, and the store of
outputs.
"""

import contextlib
import importlib.util
import os
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Executor

from stoop_worker.audio import AudioLimits, MelGeometry
from stoop_worker.config import WorkerConfig
from stoop_worker.engine_process.pixels import SharedPixels
from stoop_worker.engine_process.protocol import Ready
from stoop_worker.errors import ConfigError
from stoop_worker.images import ImageLimits, Preparation, image_pool
from stoop_worker.jobs.budget import Budget
from stoop_worker.jobs.fetch.counted import CountedFetcher
from stoop_worker.jobs.fetch.fetcher import FetchConfig, Fetcher
from stoop_worker.jobs.fetch.https import HttpsConfig, HttpsFetcher
from stoop_worker.jobs.output_store import OutputStore
from stoop_worker.jobs.prepare import Budgets, FetchPort, ImagePreparer, Images
from stoop_worker.jobs.recordings import Recordings
from stoop_worker.metrics import Metrics

__all__ = ["running_media", "running_outputs", "store_of"]

_MOST_THREADS = 6  # more decode hardly faster, and take the interpreter from the event loop
_RESERVED_SHARE = 8  # one byte or window of this number is reserved for the first lane


@contextlib.asynccontextmanager
async def running_media(
    config: WorkerConfig, ready: Ready, shared_pixels: SharedPixels, metrics: Metrics
) -> AsyncIterator[tuple[Images, Recordings | None]]:
    """Build the parts for a worker whose engine is ready, and end their connections and threads with the `with`.

    Only a model of speech has `Recordings`. Raises `ConfigError` if it lacks the library that decodes them.
    """
    # one thread more than decode bulk images: the first lane never waits for the end of one
    reserved = int(len(config.lanes) > 1)
    threads = (config.image_threads or _image_threads()) + reserved
    limits = ImageLimits(max_bytes=config.max_image_bytes, max_pixels=config.max_image_pixels)
    hears = isinstance(ready.preparation, MelGeometry)
    largest = config.max_audio_bytes if hears else config.max_image_bytes
    with image_pool(threads) as pool:
        async with Fetcher(store_of(config, largest), https=_https(config, largest)) as fetcher:
            # a GPU cuts and resizes images quicker than the front's threads
            on_device = ready.device != "cpu"
            preparer = ImagePreparer(
                pool, limits, _preparation(ready), shared_pixels.empty, on_device, config.jpegs_on_gpu and on_device
            )
            budgets = Budgets(
                encoded=Budget(config.max_fetched_bytes, reserved=config.max_fetched_bytes // _RESERVED_SHARE),
                threads=Budget(threads, reserved=reserved),
                pixels=Budget(config.max_decoded_bytes, reserved=config.max_decoded_bytes // _RESERVED_SHARE),
                largest=largest,
            )
            counted = CountedFetcher(fetcher, metrics)
            recordings = _recordings(config, ready, counted, pool, budgets, shared_pixels)
            yield Images(counted, preparer, budgets), recordings


def _preparation(ready: Ready) -> Preparation:
    """Return the preparation of images; a model of speech takes none."""
    return None if isinstance(ready.preparation, MelGeometry) else ready.preparation


def _image_threads() -> int:
    """Use the cores this process may use, but not all of a large machine: each thread may hold a whole image."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, _MOST_THREADS)


@contextlib.contextmanager
def running_outputs(config: WorkerConfig) -> Iterator[OutputStore | None]:
    """Build the store of large outputs, and end its threads with the `with`; None if outputs stay in Redis."""
    if config.output_bucket is None:
        yield None
        return
    with OutputStore(
        store_of(config, config.max_image_bytes), config.output_bucket, least=config.output_bytes
    ) as store:
        yield store


def store_of(config: WorkerConfig, largest: int) -> FetchConfig:
    """Return the object store; a file may have `largest` bytes."""
    return FetchConfig(
        endpoint=config.s3_endpoint,
        region=config.s3_region,
        path_style=config.s3_path_style,
        allowed=config.allowed,
        max_bytes=largest,
        timeout=config.fetch_timeout_seconds,
        concurrency=config.fetch_concurrency,
    )


def _https(config: WorkerConfig, largest: int) -> HttpsFetcher | None:
    if not config.allow_https:
        return None
    return HttpsFetcher(
        HttpsConfig(
            hosts=config.https_hosts,
            max_bytes=largest,
            timeout=config.fetch_timeout_seconds,
        )
    )


def _recordings(
    config: WorkerConfig,
    ready: Ready,
    fetcher: FetchPort,
    pool: Executor,
    budgets: Budgets,
    shared_pixels: SharedPixels,
) -> Recordings | None:
    if not isinstance(ready.preparation, MelGeometry):
        return None
    if importlib.util.find_spec("av") is None:
        raise ConfigError("a model of speech needs PyAV to decode audio: pip install 'stoop[audio]'")
    limits = AudioLimits(max_bytes=config.max_audio_bytes, max_seconds=config.max_audio_seconds)
    count = max(1, config.permits_on(ready.device) // 2)
    windows = Budget(count, reserved=count // _RESERVED_SHARE)
    return Recordings(fetcher, pool, limits, ready.preparation, budgets, shared_pixels.empty, windows)
