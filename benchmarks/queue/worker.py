"""Starts a worker for the benchmarks of the queue, and writes its model folder."""

import argparse
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks.engine.full_size import DTYPES, SIZES
from stoop.demo.child_server import ChildServer
from stoop.demo.embedded import EmbeddedRedis, EmbeddedS3

__all__ = ["model_folder", "pairs", "queue_worker"]

_START_SECONDS = 300.0  # load some gigabytes, compile, capture
# `stoop worker`, also where Stoop's packages are on the path but not its command
_PROGRAM = "import typer; from stoop_worker.command import command; typer.run(command)"


def model_folder(arguments: argparse.Namespace, folder: Path) -> str:
    """Return the model's folder; write it first if `--model` is a size."""
    if arguments.model not in SIZES:
        return str(arguments.model)
    program = [sys.executable, "-m", "benchmarks.engine.full_size", str(folder / "model"), "--size", arguments.model]
    # in its own process, because the worker needs the device's memory
    subprocess.run([*program, "--device", arguments.device, "--dtype", arguments.dtype], check=True)
    return str(folder / "model")


@contextlib.contextmanager
def queue_worker(
    arguments: argparse.Namespace, folder: Path, servers: tuple[EmbeddedRedis, EmbeddedS3], flags: Mapping[str, str]
) -> Iterator[ChildServer]:
    """Run a worker with the device and dtype of `arguments`, and with these flags of `stoop worker`."""
    redis, s3 = servers
    ready = folder / "worker-is-ready"
    options = {
        "device": arguments.device,
        "dtype": str(DTYPES[arguments.dtype]).removeprefix("torch."),
        "ready-file": str(ready),
        "drain-seconds": "1",
        **flags,
    }
    worker = ChildServer(
        name="the worker",
        command=[
            *(sys.executable, "-c", _PROGRAM),
            *(word for name, value in options.items() for word in _flag(name, value)),
        ],
        log=folder / "worker.log",
        environment={**os.environ, **s3.environment, "STOOP_REDIS_URL": redis.url, "STOOP_S3_ENDPOINT": s3.endpoint},
        answers=lambda pid: ready.exists(),
        start_seconds=_START_SECONDS,
    )
    try:
        worker.start()
        yield worker
    finally:
        worker.end(signal.SIGTERM)


def pairs(flags: list[str]) -> dict[str, str]:
    """Return the values of NAME=VALUE flags by name."""
    return {name.replace("_", "-"): value for name, _, value in (flag.partition("=") for flag in flags)}


def _flag(name: str, value: str) -> tuple[str, ...]:
    switches = {"True": f"--{name}", "False": f"--no-{name}"}
    return (switches[value],) if value in switches else (f"--{name}", value)
