"""Counts the instructions of a process by `perf`; other work on the machine hardly changes them, unlike times."""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

__all__ = ["InstructionCount", "can_count", "counting"]

_EVENT = "instructions:u"


def can_count() -> bool:
    """Return whether this machine has `perf` and a processor whose counters it may read."""
    if shutil.which("perf") is None:
        return False
    done = subprocess.run(["perf", "stat", "-x,", "-e", _EVENT, "true"], capture_output=True, text=True)
    return done.returncode == 0 and done.stderr.partition(",")[0].strip().isdigit()


class InstructionCount:
    """Instructions outside the kernel; `counted` is set when the counting ends."""

    counted: int = 0


@contextlib.contextmanager
def counting(process: int) -> Iterator[InstructionCount]:
    """Count the instructions of all threads of a process inside the `with`, without those of its child processes."""
    count = InstructionCount()
    with tempfile.TemporaryDirectory(prefix="stoop-count-") as name:
        folder = Path(name)
        orders, answers, report = (folder / part for part in ("orders", "answers", "report"))
        os.mkfifo(orders)
        os.mkfifo(answers)
        perf = subprocess.Popen(
            [
                *("perf", "stat", "-x,", "-e", _EVENT, "-p", str(process), "-o", str(report)),
                *("--delay", "-1", "--control", f"fifo:{orders},{answers}"),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        with orders.open("w") as order, answers.open() as answer:
            _obeyed("enable", order, answer)
            yield count
            _obeyed("disable", order, answer)
            perf.send_signal(signal.SIGINT)
            perf.wait(30)
        row = next(line for line in report.read_text().splitlines() if _EVENT in line)
        count.counted = int(row.partition(",")[0])


def _obeyed(text: str, order: IO[str], answer: IO[str]) -> None:
    order.write(f"{text}\n")
    order.flush()
    if "ack" not in answer.readline():
        raise SystemExit("perf does not answer")
