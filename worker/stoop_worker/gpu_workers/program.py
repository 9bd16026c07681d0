"""The program of one worker under a parent: `python -m stoop_worker.gpu_workers.program PARENT GPU`.

Its settings are in the environment. It drains if the parent dies, because the next parent starts a worker of its own.
"""

import ctypes
import os
import select
import signal
import sys
import threading

import structlog

from stoop_worker.config import read_config
from stoop_worker.errors import WorkerError, exit_code_of
from stoop_worker.logs import configure_logs
from stoop_worker.main import serve

__all__ = ["main", "tie_to"]

_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG


def tie_to(parent: int) -> None:
    """Have the kernel send SIGTERM once when the parent ends; end at once if it has ended already."""
    if hasattr(os, "pidfd_open"):
        try:
            watching = threading.Thread(target=_drain_after, args=(os.pidfd_open(parent),), daemon=True, name="parent")
            watching.start()
        except ProcessLookupError:
            sys.exit(1)
        except OSError:  # an old kernel, or a sandbox that forbids it
            _die_with_parent()
    if os.getppid() != parent:
        sys.exit(1)


def _drain_after(parent: int) -> None:
    """Wait for the end of the process with this descriptor, then ask this process to drain."""
    select.select([parent], [], [])
    os.kill(os.getpid(), signal.SIGTERM)


def _die_with_parent() -> None:
    """Let the kernel send the signal: once for each thread of the parent that was this process's parent in turn.

    A second signal ends a drain, so this is the second choice.
    """
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGTERM)


def main() -> None:
    """Run the worker; every line of its log names the GPU."""
    parent, gpu = sys.argv[1:]
    tie_to(int(parent))
    structlog.contextvars.bind_contextvars(gpu=gpu)
    try:
        config = read_config({})
        configure_logs(config.log_level, config.log_format)
        serve(config)
    except WorkerError as error:
        print(f"stoop worker on GPU {gpu}: {error}", file=sys.stderr)
        sys.exit(exit_code_of(error))


if __name__ == "__main__":
    main()
