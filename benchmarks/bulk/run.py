"""Measures the memory of `stoop bulk` by the number of rows, and kills runs in the middle to check that none is lost.

    python -m benchmarks.bulk.run memory --rows 2000 1000000     # a queue in memory, a process for each size
    python -m benchmarks.bulk.run kills --images 2000 --kills 2   # real Redis, S3 and a worker with the demo's model

`memory` fails if the peaks differ by more than a fifth. `kills` kills the run with -9 that number of times, resumes it,
and fails unless every image then has exactly one row, and exactly as many jobs have run. --out writes JSON.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

__all__ = ["main", "measure_kills", "measure_memory"]

_MOST_RATIO = 1.2
_BAD_SHARE = 0.01
_QUESTION = "What is this?"


def main() -> None:
    """Measure, print, and check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=["memory", "kills"])
    parser.add_argument("--rows", type=int, nargs="+", default=[2000, 1_000_000])
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--kills", type=int, default=2)
    parser.add_argument("--out", type=Path, help="file to write the figures to, as JSON")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="stoop-bulk-") as name:
        if arguments.kind == "memory":
            figures: Any = measure_memory(arguments.rows, Path(name))
        else:
            figures = measure_kills(arguments.images, arguments.kills, Path(name))
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


def measure_kills(images: int, kills: int, folder: Path) -> dict[str, Any]:
    """Run over images in a bucket, kill the process `kills` times, and count the rows in the end."""
    from benchmarks.bulk.process import BulkProcess, draw_images
    from stoop.demo.embedded import embedded_redis, embedded_s3
    from stoop.demo.worker_process import find_model, running_worker

    bad = round(images * _BAD_SHARE)
    with embedded_redis(folder / "redis") as redis, embedded_s3(folder / "s3") as s3:
        store = s3.client()
        for name, encoded in draw_images(images, bad):
            store.put_object(Bucket=s3.bucket, Key=f"photos/{name}", Body=encoded)
        out = folder / "out"
        arguments = [f"s3://{s3.bucket}/photos/", "--skill", "query", "--question", _QUESTION, "--max-tokens", "3"]
        arguments += ["--temperature", "0", "--in-flight", "64", "--out", str(out)]
        environment = s3.environment | {
            "STOOP_REDIS_URL": redis.url,
            "STOOP_S3_ENDPOINT": s3.endpoint,
            "STOOP_S3_PATH_STYLE": "true",
        }
        flags = {"lanes": "interactive,bulk", "max-image-pixels": "1000000", "permits": "16"}
        with running_worker(folder, find_model(None), redis, s3, flags):
            began = time.monotonic()
            killed_at = []
            for number in range(1, kills + 1):
                run = BulkProcess(arguments, environment)
                killed_at.append(run.wait_until(images * number // (kills + 1)))
                run.kill()
                print(f"killed at {killed_at[-1]:,} of {images:,}")
            code, output, errors = BulkProcess(arguments, environment).finish()
            seconds = time.monotonic() - began
        print(output)
        if code != 0:
            raise SystemExit(errors)
        return _check(out, _names(images, s3.bucket), _ended(redis.url), killed_at) | {"seconds": round(seconds, 1)}


def _names(images: int, bucket: str) -> list[str]:
    return [f"s3://{bucket}/photos/photo-{number:06}.png" for number in range(images)]


def _ended(url: str) -> int:
    """Return the number of jobs that have ended; one that ran twice counts twice."""
    from redis import Redis

    from stoop_schemas import names

    with Redis.from_url(url, protocol=2) as redis:
        totals = redis.hgetall(names.totals(0))
    return sum(int(totals.get(state, 0)) for state in (b"completed", b"failed"))


def _check(out: Path, wanted: list[str], ran: int, killed_at: list[int]) -> dict[str, Any]:
    rows = Counter(
        json.loads(line)["row"]
        for path in (*out.glob("results-*.jsonl"), out / "errors.jsonl")
        for line in path.read_bytes().splitlines()
    )
    if rows != Counter(wanted):
        raise SystemExit(f"{len(wanted)} rows wanted, but {rows.total()} found, {len(rows)} of them different")
    if ran != len(wanted):
        raise SystemExit(f"{ran} jobs ran for {len(wanted)} rows")
    summary = json.loads((out / "summary.json").read_text())
    causes = {cause["code"]: cause["count"] for cause in summary["causes"]}
    print(f"{len(rows):,} rows, each once; {ran:,} jobs ran; {sum(causes.values())} failed: {causes}")
    return {"rows": len(rows), "jobs": ran, "killed_at": killed_at, "causes": causes}


if __name__ == "__main__":
    main()
