"""The worker of `benchmarks.front.run`: a real front that prints its threads' CPU time for each line of input."""

import json
import os
import sys
from collections import Counter
from pathlib import Path
from threading import Thread, enumerate, main_thread

from stoop_worker.config import read_config
from stoop_worker.logs import configure_logs
from stoop_worker.main import serve

__all__ = ["main"]

_PROGRAM = (sys.executable, "-m", "benchmarks.front.engine")


def main() -> None:
    """Serve until stopped."""
    config = read_config({"model": "checksums"})
    configure_logs(config.log_level, config.log_format)
    Thread(target=_report, daemon=True, name="reporter").start()
    serve(config, program=_PROGRAM)


def _report() -> None:
    for _ in sys.stdin:
        print(json.dumps(_cpu_by_part()), flush=True)


def _cpu_by_part() -> dict[str, float]:
    """Return the CPU seconds of the threads so far, by the names of their pools: "fetch_3" belongs to "fetch"."""
    spent: Counter[str] = Counter()
    for thread in enumerate():
        name = "loop" if thread is main_thread() else thread.name.rpartition("_")[0] or thread.name
        spent[name] += int(Path(f"/proc/{os.getpid()}/task/{thread.native_id}/schedstat").read_text().split()[0])
    del spent["reporter"]
    return {name: nanoseconds / 1e9 for name, nanoseconds in spent.items()}


if __name__ == "__main__":
    main()
