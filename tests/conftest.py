"""Shared by all tests. Imports nothing that a bare GPU machine lacks: the fixtures import their own requirements."""

import atexit
import contextlib
import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.servers import redis_server, redis_url, s3

__all__ = [
    "log_settings",
    "pytest_collection",
    "pytest_collection_modifyitems",
    "pytest_xdist_auto_num_workers",
    "redis_server",
    "redis_url",
    "s3",
    "seed",
]

# each holds torch, a model and servers of its own: more than a gigabyte
MOST_PROCESSES = 8

# before torch is imported: several threads of it on busy cores wait for each other, many times longer than one works
os.environ.setdefault("OMP_NUM_THREADS", "1")
# a worker that a command of ours starts has one for each core: while they wait, they leave the cores to others
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# before anything imports Triton, `tests/gpu` for one: without a device its kernels can only be interpreted
if not any(Path("/dev").glob("nvidia[0-9]*")):
    os.environ["TRITON_INTERPRET"] = "1"

with contextlib.suppress(ImportError):
    from hypothesis import HealthCheck, settings

    # a busy machine must not fail a test, and the same commit always draws the same examples
    settings.register_profile("stoop", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("stoop")


# a shell that starts the tests in the background has them ignore Ctrl-C, and so would all processes they start
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def seed() -> None:
    """Give each test the same random tensors every time, in whatever order the tests run."""
    if torch := sys.modules.get("torch"):
        torch.manual_seed(0)


@pytest.fixture(autouse=True)
def log_settings() -> Iterator[None]:
    """Undo a test's changes to the settings of the log, such as running a command with `--log-level error`."""
    structlog = sys.modules.get("structlog")
    before = structlog.get_config() if structlog else {}
    yield
    if structlog:
        structlog.configure(**before)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Keep the garbage collector away from the modules that tests import: it would walk millions of objects again and
    again.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
        # some libraries complain if one of their objects outlives the interpreter
        atexit.register(gc.unfreeze)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests marked `gpu` where there is no CUDA device."""
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and not _has_cuda():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Share the tests among one process more than there are cores, because tests often wait for other processes."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores + 1, MOST_PROCESSES)


def _has_cuda() -> bool:
    import torch

    return torch.cuda.is_available()
