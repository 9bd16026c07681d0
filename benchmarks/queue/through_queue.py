"""Compares the same questions through Redis, S3 and a worker on this machine with the engine alone, in one run.

    python -m benchmarks.queue.through_queue direct --concurrency 64 --requests 600

Writes a random model as a checkpoint folder, and measures `benchmarks.engine.run` on it in its own process. Then it
starts Redis, an S3 server and `stoop worker`, and keeps the same number of jobs in flight. The last lines are a table,
the share of the engine's own rate, and the CPU time that the worker's two processes take for a job.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks.client import client_config
from benchmarks.engine.bench import add_flags, photos_of
from benchmarks.engine.photos import Format, Photos
from benchmarks.engine.workloads import WORKLOADS
from benchmarks.figures import lines, machine, summarise, write_json
from benchmarks.queue.closed_loop import ClosedLoop
from benchmarks.queue.processes import cpu_seconds, descendants, worker_cpu, worker_cpu_line
from benchmarks.queue.worker import model_folder, pairs, queue_worker
from stoop.demo.embedded import EmbeddedS3, embedded_redis, embedded_s3

__all__ = ["main"]

_LANE = "bench"


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Measure both ways and print; return the figures."""
    arguments = _parser().parse_args(argv)
    workload, load = WORKLOADS[arguments.workload], arguments.concurrency
    with tempfile.TemporaryDirectory(prefix="stoop-through-queue-", dir=arguments.folder) as name:
        folder = Path(name)
        model = model_folder(arguments, folder)
        direct = _read(arguments.direct or _engine_direct(arguments, model, folder / "direct.json"))
        wanted = 2 * load + max(arguments.requests, 2 * load) + 1
        photos = photos_of(map(workload.ask, range(wanted)), arguments.photos, most=wanted)
        with embedded_redis(folder / "redis") as redis, embedded_s3(folder / "s3") as s3:
            _upload(photos, s3)
            with queue_worker(arguments, folder, (redis, s3), _flags(arguments, model)) as worker:
                front = worker.process.pid if worker.process else 0
                engines = descendants(front)
                loop = ClosedLoop(
                    client_config(redis, s3, lane=_LANE),
                    map(workload.ask, count()),
                    image_of=lambda ask: f"s3://{s3.bucket}/{_key(ask.shape, ask.photo)}",
                    cpu=lambda: (cpu_seconds([front]), cpu_seconds(engines)),
                )
                run = asyncio.run(loop.go(load, max(arguments.requests, 2 * load), arguments.seconds))
    (engine,), figures = direct["figures"], summarise(run.records, load, began=run.began)
    document = {
        "kind": "queue",
        "workload": workload.name,
        "model": arguments.model,
        "dtype": arguments.dtype,
        "machine": machine(arguments.device),
        "engine_direct": engine,
        "figures": [asdict(figures)],
        **worker_cpu(*run.cpu, len(run.records)),
        "table": lines([figures]),
        "share_of_engine": figures.requests_per_second / engine["requests_per_second"],
    }
    write_json(document, arguments.out, f"queue-{workload.name}")
    _print(document)
    return document


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload", choices=WORKLOADS, nargs="?", default="direct")
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--folder", type=Path, help="where the servers and the model's folder go, for example /dev/shm")
    parser.add_argument("--direct", type=Path, help="figures of the engine alone, if they have just been measured")
    parser.add_argument("--worker", nargs="*", default=[], metavar="FLAG=VALUE", help="flags of `stoop worker`")
    add_flags(parser)
    return parser


def _engine_direct(arguments: argparse.Namespace, model: str, out: Path) -> Path:
    options = {
        "model": model,
        "concurrency": arguments.concurrency,
        "requests": arguments.requests,
        "device": arguments.device,
        "dtype": arguments.dtype,
        "photos": arguments.photos,
        "seconds": arguments.seconds,
        "out": out,
    }
    program = [sys.executable, "-m", "benchmarks.engine.run", arguments.workload]
    program += [word for name, value in options.items() for word in (f"--{name}", str(value))]
    program += ["--engine", *arguments.engine]
    program += [f"--{flag}" for flag in ("on-device", "jpegs-on-gpu") if getattr(arguments, flag.replace("-", "_"))]
    program += ["--precision", arguments.precision] if arguments.precision else []
    subprocess.run(program, check=True)
    return out


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def _flags(arguments: argparse.Namespace, model: str) -> dict[str, str]:
    permits = str(max(128, arguments.concurrency))
    return {
        "model": model,
        "lanes": _LANE,
        "permits": permits,
        "jpegs-on-gpu": str(arguments.jpegs_on_gpu),
        **pairs([*arguments.engine, *arguments.worker]),
    }


def _upload(photos: Photos, s3: EmbeddedS3) -> None:
    store = s3.client()
    with ThreadPoolExecutor(8) as pool:
        for shape, jpegs in photos.items():
            put = [
                pool.submit(store.put_object, Bucket=s3.bucket, Key=_key(shape, number), Body=jpeg)
                for number, jpeg in enumerate(jpegs)
            ]
            for each in put:
                each.result()


def _key(shape: Format, number: int) -> str:
    return f"photos/{shape.width}x{shape.height}/{number}.jpg"


def _print(document: dict[str, Any]) -> None:
    print("\n".join(document["table"]))
    direct, queue = document["engine_direct"], document["figures"][0]
    print(
        f"{document['workload']}: {queue['requests_per_second']:.2f} jobs/s through the queue, "
        f"{direct['requests_per_second']:.2f} requests/s of the engine alone: {document['share_of_engine']:.1%}"
    )
    print(worker_cpu_line(document))


if __name__ == "__main__":
    main()
