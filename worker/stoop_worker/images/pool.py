"""The threads that decode and cut images."""

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

__all__ = ["image_pool"]


@contextlib.contextmanager
def image_pool(threads: int) -> Iterator[ThreadPoolExecutor]:
    """Keep a pool of threads for images; leaving the `with` does not wait for threads that still decode.

    A thread cannot be stopped, so a worker that ends waits for it at the very end of the process. That is soon, because
    `load` refuses files that would keep it busy for long.
    """
    pool = ThreadPoolExecutor(threads, "image")
    try:
        yield pool
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
