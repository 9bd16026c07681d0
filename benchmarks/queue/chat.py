"""Compares the same chats through Redis and a worker on this machine with the engine alone, in one run.

    python -m benchmarks.queue.chat llama-1b --concurrency 64 --requests 400
    python -m benchmarks.queue.chat llama-1b-tiny --device cpu --threads 1 --concurrency 8

A process of its own draws random weights, writes them as a checkpoint folder, and measures the engine on them before
the worker starts. With `--rows` below `--concurrency`, more jobs wait than the engine takes into a step, as in a queue
with a backlog. Otherwise a row stays empty from a job's end to the arrival of the next one. With `--spread` answers
have different lengths. If all have one, those that began together end together, and the engine alone prefills their
successors in one step, which requests of independent callers never share. With `--again` another
process measures the engine again after the worker's end, and the share is relative to the mean of both.

On the CPU the engine is busy all the time, so empty rows show as more of its CPU time for a token. The last lines
compare that too, because other work on the machine changes it less than the rate.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from random import Random
from typing import Any, Final

import torch

from benchmarks.client import client_config
from benchmarks.engine.engine_run import EngineRun
from benchmarks.engine.full_size import DTYPES
from benchmarks.engine.run import closed_loop
from benchmarks.engine.workloads import Ask
from benchmarks.families.chats import prompts
from benchmarks.families.checkpoint import random_reference, write_folder
from benchmarks.families.sizes import MODELS, TINY, document_of
from benchmarks.figures import lines, machine, summarise, write_json
from benchmarks.queue.closed_loop import ClosedLoop
from benchmarks.queue.processes import cpu_seconds, descendants, worker_cpu, worker_cpu_line
from benchmarks.queue.worker import queue_worker
from stoop.demo.embedded import embedded_redis, embedded_s3
from stoop_worker.engine.request import Request
from stoop_worker.engine.stats import Totals
from stoop_worker.engine_process.boot import boot
from stoop_worker.engine_process.protocol import EngineSettings

__all__ = ["main"]

_LANE: Final = "bench"
_MAX_CONTEXT: Final = 4096


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Measure both ways and print; return the figures."""
    words = sys.argv[1:] if argv is None else argv
    arguments = _parser().parse_args(words)
    if arguments.alone is not None:
        return _alone(arguments)
    with tempfile.TemporaryDirectory(prefix="stoop-chat-", dir=arguments.folder) as name:
        folder = Path(name)
        # in processes of their own, because the worker needs the device's memory
        engines = [_engine(words, folder, 1)]
        document = _queue(arguments, folder)
        engines += [_engine(words, folder, 2)] if arguments.again else []
    document["engine_alone"] = engines
    document["share_of_engine"] = _tokens_per_second(document) / (sum(map(_tokens_per_second, engines)) / len(engines))
    alone = sum(each["engine_cpu_ms_per_token"] for each in engines) / len(engines)
    document["share_by_cpu"] = alone / document["engine_cpu_ms_per_token"]
    write_json(document, arguments.out, f"queue-chat-{arguments.model}")
    _print(document)
    return document


def _parser() -> argparse.ArgumentParser:
    cuda = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=[name + size for size in ("", TINY) for name in MODELS], metavar="model")
    parser.add_argument("--device", default="cuda" if cuda else "cpu")
    parser.add_argument("--dtype", choices=DTYPES, default="bf16" if cuda else "fp32")
    parser.add_argument("--threads", type=int, help="threads of torch on the CPU")
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--rows", type=int, default=64, help="most sequences in a step")
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--prompt", type=int, default=300, help="tokens of a prompt")
    parser.add_argument("--answer", type=int, default=128, help="tokens of an answer, on average")
    parser.add_argument("--spread", type=float, default=0.0, help="most difference to it, as a share of it below 1")
    parser.add_argument("--seconds", type=float, default=60.0, help="most time for each closed loop")
    parser.add_argument("--again", action="store_true", help="measure the engine a second time, after the queue")
    parser.add_argument("--folder", type=Path, help="where the servers and the model's folder go, for example /dev/shm")
    parser.add_argument("--alone", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help="file for the figures; by default in the folder $OUT")
    return parser


def _asks(arguments: argparse.Namespace, first: int) -> Iterator[Ask]:
    """Yield chats whose answers have lengths that are evenly distributed around the average."""
    random, spread = Random(first), arguments.spread
    for ask in prompts(arguments.prompt, arguments.answer, first=first):
        yield replace(ask, tokens=max(1, round(ask.tokens * random.uniform(1 - spread, 1 + spread))))


def _engine(words: list[str], folder: Path, number: int) -> dict[str, Any]:
    """Measure the engine alone in another process; return its figures."""
    subprocess.run([sys.executable, "-m", "benchmarks.queue.chat", *words, "--alone", str(folder)], check=True)
    written = (folder / "alone.json").rename(folder / f"alone-{number}.json")
    found: dict[str, Any] = json.loads(written.read_text(encoding="utf-8"))
    return found


def _alone(arguments: argparse.Namespace) -> dict[str, Any]:
    """Write the model's folder unless it is there, and measure the engine."""
    folder, dtype = arguments.alone / "model", DTYPES[arguments.dtype]
    if not folder.exists():
        document = document_of(arguments.model)
        folder.mkdir()
        write_folder(folder, document, random_reference(document, device=arguments.device, dtype=dtype), dtype)
        torch.cuda.empty_cache()
    named = str(dtype).removeprefix("torch.")
    settings = EngineSettings(
        model=str(folder),
        device=arguments.device,
        dtype=named,
        max_context=_MAX_CONTEXT,
        max_batch=arguments.rows,
    )
    if arguments.threads is not None:
        torch.set_num_threads(arguments.threads)
    engine, _ = boot(settings)
    with EngineRun(engine, lambda name, ask: Request(name, ask.task, (), ask.sampling, stream=False)) as running:
        limits = {"requests": arguments.requests, "seconds": arguments.seconds}
        spent, tokens = time.process_time(), _tokens_of(engine.stats.totals)
        figures = closed_loop(running, _asks(arguments, 1_000_000), arguments.concurrency, **limits)
        cpu_ms = 1e3 * (time.process_time() - spent) / (_tokens_of(engine.stats.totals) - tokens)
    written = {"figures": [asdict(figures)], "engine_cpu_ms_per_token": cpu_ms}
    (arguments.alone / "alone.json").write_text(json.dumps(written), encoding="utf-8")
    return written


def _tokens_of(totals: Totals) -> int:
    """Return the tokens written so far; the first one of each answer comes from its prefill."""
    return totals.decode_tokens + totals.finished


def _queue(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Measure jobs through the queue."""
    load, requests = arguments.concurrency, max(arguments.requests, 2 * arguments.concurrency)
    flags = {
        "model": str(folder / "model"),
        "lanes": _LANE,
        "permits": str(max(128, load)),
        "max-context": str(_MAX_CONTEXT),
        "max-batch": str(arguments.rows),
        **({} if arguments.threads is None else {"threads": str(arguments.threads)}),
    }
    with (
        embedded_redis(folder / "redis") as redis,
        embedded_s3(folder / "s3") as s3,
        queue_worker(arguments, folder, (redis, s3), flags) as worker,
    ):
        front = worker.process.pid if worker.process else 0
        engines = descendants(front)
        loop = ClosedLoop(
            client_config(redis, s3, lane=_LANE),
            _asks(arguments, 0),
            image_of=lambda ask: None,
            cpu=lambda: (cpu_seconds([front]), cpu_seconds(engines)),
        )
        run = asyncio.run(loop.go(load, requests, arguments.seconds))
    figures = summarise(run.records, load, began=run.began)
    return {
        "kind": "queue-chat",
        **{name: getattr(arguments, name) for name in ("model", "dtype", "prompt", "answer", "spread", "rows")},
        "machine": machine(arguments.device),
        "figures": [asdict(figures)],
        **worker_cpu(*run.cpu, len(run.records)),
        "engine_cpu_ms_per_token": 1e3 * run.cpu[1] / sum(record.tokens for record in run.records),
        "table": lines([figures]),
    }


def _tokens_per_second(document: dict[str, Any]) -> float:
    return float(document["figures"][0]["tokens_per_second"])


def _print(document: dict[str, Any]) -> None:
    print("\n".join(document["table"]))
    alone = ", ".join(f"{_tokens_per_second(each):.1f}" for each in document["engine_alone"])
    print(
        f"{document['model']}: {_tokens_per_second(document):.1f} tok/s through the queue, "
        f"{alone} of the engine alone: {document['share_of_engine']:.1%}"
    )
    cpu = ", ".join(f"{each['engine_cpu_ms_per_token']:.4f}" for each in document["engine_alone"])
    print(
        f"CPU of the engine's process a token: {document['engine_cpu_ms_per_token']:.4f} ms through the queue, "
        f"{cpu} ms alone: {document['share_by_cpu']:.1%}"
    )
    print(worker_cpu_line(document))


if __name__ == "__main__":
    main()
