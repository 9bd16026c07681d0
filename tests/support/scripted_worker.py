"""A real worker, except for its engine: `python -m tests.support.scripted_worker`, configured by the usual variables.

Front, queue, fetching, publishing and the engine's process are the product's; in that process a script answers. So
thousands of jobs cost little, and a job can ask for the engine's death (see `tests.support.scripted_child`).
"""

import ctypes
import os
import signal
import sys

from stoop_worker.config import read_config
from stoop_worker.gpu_workers.program import tie_to
from stoop_worker.logs import configure_logs
from stoop_worker.main import serve

__all__ = ["main"]

_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG


def main() -> None:
    """Serve until a signal. Its end follows that of the test that started it; with `--gpus` it drains first."""
    if len(sys.argv) > 1:
        tie_to(int(sys.argv[1]))  # the parent of several workers: this one drains when it ends
    else:
        ctypes.CDLL(None, use_errno=True).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    if os.getppid() == 1:
        sys.exit("the test ended before its worker began")
    config = read_config({"model": "scripted"})
    configure_logs(config.log_level, config.log_format)
    serve(config, program=[sys.executable, "-m", "tests.support.scripted_child"])


if __name__ == "__main__":
    main()
