"""Shows where a decode step's time goes: kernel by kernel on the GPU, and part by part in the engine's thread.

    python -m benchmarks.families.step_times llama-1b
    python -m benchmarks.families.step_times qwen3-4b-fp8 --concurrency 64

Answers are checked first. As many requests as are in flight at most decode together: at contexts from 836 on, then
free text and JSON as in the workload `json`. `idle` is the time without a kernel before a kernel's launches. It is
measured with the profiler, which makes launches slower. The times of the engine's thread are medians, in wall time and
without the profiler. On a CPU there are only these.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import islice
from math import inf
from statistics import median
from typing import Any, Final

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from benchmarks.families import chats, forms, run
from benchmarks.families.opened import Opened, open_model
from benchmarks.families.timed_parts import TimedParts
from benchmarks.figures import machine, write_json
from stoop_worker.engine.device.decode_buffers import DecodeBuffers
from stoop_worker.engine.device.decoder import Decoder
from stoop_worker.engine.device.heads import PendingHeads
from stoop_worker.engine.device.static_buffers import StaticBuffers
from stoop_worker.engine.engine import Engine
from stoop_worker.engine.graphs import Graphs
from stoop_worker.engine.request import Request
from stoop_worker.engine.scheduler import Scheduler

__all__ = ["KernelTimes", "kernels_of", "main"]

Span = tuple[str, float, float]
"""A kernel's name, its begin and its end, in microseconds."""

_PARTS: Final = (
    ("schedule", Scheduler, ("schedule", "commit")),
    ("inputs of the step", Decoder, ("run",)),
    ("masks", DecodeBuffers, ("fill_masks",)),
    ("copies to the device", StaticBuffers, ("send",)),
    ("launches of graphs", Graphs, ("replay",)),
    ("waits for tokens", PendingHeads, ("collect",)),
    ("tokens to skills", Engine, ("_advance",)),
    ("look ahead", Engine, ("_look_ahead",)),
    ("rest of the step", Engine, ("step",)),
)
_SETTLING, _PROFILED, _TIMED = 4, 12, 40
_NAME: Final = 90  # characters of a kernel's name in the table


@dataclass(frozen=True, slots=True)
class KernelTimes:
    """One kernel in a step: its launches, and microseconds of all of them, with the `idle` time before them."""

    name: str
    launches: float
    busy: float
    idle: float


def kernels_of(spans: Iterable[Span], steps: int) -> list[KernelTimes]:
    """Sum up the kernels of some steps, the longest first."""
    sums: dict[str, list[float]] = {}
    reached = -inf
    for name, begin, end in sorted(spans, key=lambda span: span[1]):
        own = sums.setdefault(name, [0.0, 0.0, 0.0])
        idle = max(0.0, begin - reached) if reached > -inf else 0.0
        for at, value in enumerate((1.0, end - begin, idle)):
            own[at] += value / steps
        reached = max(reached, end)
    return sorted((KernelTimes(name, *own) for name, own in sums.items()), key=lambda found: -found.busy)


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Check, measure and print; return the figures."""
    arguments = run.arguments_of(argv)
    opened = open_model(arguments)
    if not isinstance(opened.engine, Engine):
        raise SystemExit(f"{arguments.model} does not decode: give the name of a chat model")
    print(f"checked: {run.check(opened)}", flush=True)
    opened.reference = None  # its memory is free for the pages
    found = {name: _measured(opened.engine, asked) for name, asked in _requests(opened, max(opened.loads)).items()}
    document = {
        "kind": "step-times",
        "model": arguments.model,
        "machine": machine(arguments.device),
        "kinds": {
            name: {"kernels": list(map(asdict, kernels)), "thread": parts} for name, (kernels, parts) in found.items()
        },
    }
    write_json(document, arguments.out, f"step-times-{arguments.model}")
    for name, (kernels, parts) in found.items():
        print("\n".join(_lines(name, kernels, parts)))
    return document


def _requests(opened: Opened, load: int) -> dict[str, list[Request]]:
    kinds = {"free text": None, "JSON": forms.grammar_of(forms.FIELDS, forms.MOST_CHARACTERS)}
    texts = {name: forms.requests_of(opened, name, grammar) for name, grammar in kinds.items()}
    return {name: list(islice(asked, load)) for name, asked in {"decode": chats.decodes(opened), **texts}.items()}


def _measured(engine: Engine, asked: Sequence[Request]) -> tuple[list[KernelTimes], dict[str, float]]:
    """Return the kernels of a step in which all requests decode, and the microseconds of the thread's parts."""
    for request in asked:
        engine.submit(request)
    while engine.stats.waiting or engine.stats.running < len(asked):
        engine.step()
    _step(engine, _SETTLING)
    kernels = _profiled(lambda: _step(engine, _PROFILED)) if torch.cuda.is_available() else []
    parts, steps = TimedParts(time.perf_counter_ns), list[dict[str, int]]()
    with ExitStack() as stack:
        for part, owner, methods in _PARTS:
            stack.enter_context(parts.measuring(part, owner, *methods))
        while len(steps) < _TIMED and engine.stats.running == len(asked):
            engine.step()
            steps.append(parts.take())
    if not steps:
        raise SystemExit("the requests ended before any step was timed: make their answers longer")
    while not engine.idle:
        engine.step()
    named = [part for part, _, _ in _PARTS]
    whole = {"whole step": median(sum(step.values()) for step in steps) / 1e3}
    return kernels, {**{name: median(step.get(name, 0) for step in steps) / 1e3 for name in named}, **whole}


def _step(engine: Engine, steps: int) -> None:
    for _ in range(steps):
        engine.step()


def _profiled(work: Callable[[], None]) -> list[KernelTimes]:
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        work()
        torch.cuda.synchronize()
    spans = [
        (str(event.name), float(event.time_range.start), float(event.time_range.end))
        for event in profiler.events()
        if event.device_type == DeviceType.CUDA
    ]
    return kernels_of(spans, _PROFILED)


def _lines(name: str, kernels: Sequence[KernelTimes], parts: dict[str, float]) -> list[str]:
    lines = [f"== {name}"]
    if kernels:
        busy, idle = sum(each.busy for each in kernels), sum(each.idle for each in kernels)
        lines.append(
            f"{'us a step':>9}{'launches':>9}{'us each':>8}{'idle':>7}  kernel: {busy:.0f} busy, {idle:.0f} idle"
        )
        lines += [
            f"{each.busy:9.1f}{each.launches:9.1f}{each.busy / each.launches:8.2f}{each.idle:7.1f}  {each.name[:_NAME]}"
            for each in kernels
        ]
    return lines + [f"{spent:9.0f} us  {part}" for part, spent in parts.items()]


if __name__ == "__main__":
    main()
