"""Measures the memory of `stoop bulk` by the number of rows, and kills runs in the middle to check that none is lost.

    python -m benchmarks.bulk.run memory --rows 2000 1000000     # a queue in memory, a process for each size
    python -m benchmarks.bulk.run kills images --count 2000    # real Redis, S3 and a worker with a bundled model
    python -m benchmarks.bulk.run kills texts --count 10000
    python -m benchmarks.bulk.run kills recordings --count 200

`memory` fails if the peaks differ by more than a fifth. `kills` kills the run with -9 twice, or --kills times, and
resumes it. It fails unless every row is then there exactly once, and all bad ones and no others have failed. For images
and recordings exactly as many jobs must have run, and copies of a recording must have one transcript. --out writes
JSON.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

__all__ = ["main", "measure_memory"]

_MOST_RATIO = 1.2
_COUNTS = {"images": 2000, "texts": 10_000, "recordings": 200}


def main() -> None:
    """Measure, print, and check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measure", choices=["memory", "kills"])
    parser.add_argument("kind", nargs="?", choices=_COUNTS, default="images", help="what the rows of `kills` are")
    parser.add_argument("--rows", type=int, nargs="+", default=[2000, 1_000_000])
    parser.add_argument("--count", type=int, help="rows of `kills`; by default as many as above")
    parser.add_argument("--kills", type=int, default=2)
    parser.add_argument("--out", type=Path, help="file to write the figures to, as JSON")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="stoop-bulk-") as name:
        if arguments.measure == "memory":
            figures: Any = measure_memory(arguments.rows, Path(name))
        else:
            from benchmarks.bulk.kills import measure_kills

            count = arguments.count or _COUNTS[arguments.kind]
            figures = measure_kills(arguments.kind, count, arguments.kills, Path(name))
    if arguments.out:
        arguments.out.write_text(json.dumps(figures, indent=2) + "\n")


def measure_memory(sizes: list[int], folder: Path) -> list[dict[str, Any]]:
    """Run each size in its own process, and then once more when all its rows are done already."""
    runs = []
    print(f"{'rows':>10} {'resumed':>8} {'seconds':>8} {'rows/s':>8} {'peak MB':>8} {'ratio':>6}")
    for rows in sizes:
        for resumed in (False, True):
            run = {**_run_in_memory(rows, folder), "resumed": resumed}
            runs.append(run)
            ratio = run["peak_mb"] / runs[0]["peak_mb"]
            print(
                f"{rows:>10,} {'yes' if resumed else 'no':>8} {run['seconds']:>8.1f} {rows / run['seconds']:>8,.0f}"
                f" {run['peak_mb']:>8.1f} {ratio:>6.2f}"
            )
            if ratio > _MOST_RATIO:
                raise SystemExit("the peak grows with the rows")
            if run["completed"] + run["failed"] != rows:
                raise SystemExit(f"{run['completed'] + run['failed']} rows of {rows}")
    return runs


def _run_in_memory(rows: int, folder: Path) -> dict[str, Any]:
    # this process imports nothing large, because a child's peak starts at its parent's size
    command = [sys.executable, "-m", "benchmarks.bulk.memory", "--rows", str(rows), "--folder", str(folder)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    output: dict[str, Any] = json.loads(done.stdout)
    return output


if __name__ == "__main__":
    main()
