"""The parent of scripted workers, one a GPU: `python -m tests.support.scripted_gpus`.

The usual variables configure it.
"""

import sys

from stoop_worker.config import read_config
from stoop_worker.errors import WorkerError, exit_code_of
from stoop_worker.gpu_workers.member import Restarts
from stoop_worker.gpu_workers.parent import serve_gpus
from stoop_worker.logs import configure_logs

__all__ = ["main"]


def main() -> None:
    """Serve until stopped."""
    config = read_config({"model": "scripted"})
    configure_logs(config.log_level, config.log_format)
    program = [sys.executable, "-m", "tests.support.scripted_worker"]
    try:
        serve_gpus(config, {}, program=program, restarts=Restarts(first=0.05))
    except WorkerError as error:
        print(error, file=sys.stderr)
        sys.exit(exit_code_of(error))


if __name__ == "__main__":
    main()
