"""A worker of the tests as a process: a module whose engine is a stand-in."""

import sys
from collections.abc import Mapping
from pathlib import Path

from stoop.demo.child_server import ChildServer

__all__ = ["worker_process"]


def worker_process(module: str, folder: Path, environment: Mapping[str, str], *, name: str = "worker") -> ChildServer:
    """Return the worker that a module runs, to be started and ended by the caller.

    `environment` is its whole environment. The files in `folder`, a log and the ready file, begin with `name`.
    """
    ready = folder / f"{name}.ready"
    return ChildServer(
        name="the worker",
        command=[sys.executable, "-m", module],
        log=folder / f"{name}.log",
        environment={
            **environment,
            "STOOP_READY_FILE": str(ready),
            "STOOP_LEASE_SECONDS": "2",
            "STOOP_DRAIN_SECONDS": "1",
        },
        answers=lambda pid: ready.exists(),
        start_seconds=60,
    )
