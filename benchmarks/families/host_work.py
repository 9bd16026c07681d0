"""Measures the interpreter's work in a decode step beside a model on a GPU, without a GPU.

    python -m benchmarks.families.host_work --batch 64

The engine runs as on a GPU, with steps that are captured and one step ahead, but over a model that computes next to
nothing (`summing_model.py`). Answers are checked first: free text word by word, JSON against its schema. The table has
microseconds of processor time a step in the engine's thread, free text and JSON alternately, in steps in which all
requests decode. Masks are computed in that thread too; a worker takes more threads where they are faster. The rows
below the sum are no part of it: captured work and copies stand for the device, and reports are packed by another thread
of the same process. To compare two trees, run it in each of them alternately.
"""

import argparse
import json
import tempfile
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import ExitStack
from itertools import count, islice
from pathlib import Path
from statistics import fmean, median
from typing import Any, Final
from unittest.mock import patch

import torch
from torch import Tensor

from benchmarks.engine.check import WrongAnswers
from benchmarks.families.forms import FIELDS, MOST_CHARACTERS, grammar_of
from benchmarks.families.summing_model import SummingModel
from benchmarks.families.timed_parts import TimedParts
from benchmarks.figures import machine, write_json
from stoop_worker.engine.config import EngineConfig
from stoop_worker.engine.device import runner
from stoop_worker.engine.device.decode_buffers import DecodeBuffers
from stoop_worker.engine.device.decoder import Decoder
from stoop_worker.engine.device.static_buffers import StaticBuffers
from stoop_worker.engine.engine import Engine
from stoop_worker.engine.grammars.masks import Choice
from stoop_worker.engine.graphs import Graphs
from stoop_worker.engine.request import Chat, Finished, Grammar, Message, Output, Request, Sampling
from stoop_worker.engine.scheduler import Scheduler
from stoop_worker.engine.thread import EngineThread
from stoop_worker.engine_process import frames
from stoop_worker.engine_process.protocol import Report
from stoop_worker.garbage import keep_what_is_loaded

__all__ = ["main", "measure"]

_CONTEXT: Final = 1024
_PROMPT: Final = "a question of some words, repeated. " * 8
_TOKENS: Final = 128
_CHECKED: Final = 4
_IN_THIS_THREAD: Final = 0  # the first of the ways to compute masks
_PARTS: Final = (
    ("schedule", Scheduler, ("schedule", "commit")),
    ("inputs of the step", Decoder, ("run",)),
    ("masks", DecodeBuffers, ("fill_masks",)),
    ("tokens to skills", Engine, ("_advance",)),
    ("look ahead", Engine, ("_look_ahead",)),
    ("rest of the step", Engine, ("step",)),
    ("delivery and counts", EngineThread, ("_run_round",)),
)


class _Kept(Graphs):
    """Work that is kept and called again, in place of CUDA graphs."""

    def __init__(self) -> None:
        self._work: dict[Hashable, Callable[[], Tensor]] = {}

    def __contains__(self, key: Hashable) -> bool:
        return key in self._work

    def capture(self, key: Hashable, work: Callable[[], Tensor]) -> None:
        """Keep work."""
        self._work[key] = work

    def replay(self, key: Hashable) -> Tensor:
        """Call it; the result is a copy, because a view would change before the engine reads it."""
        return self._work[key]().clone()


class _Bench:
    """An engine's loop, which runs in the caller's thread."""

    def __init__(self, model: SummingModel, batch: int) -> None:
        config = EngineConfig(max_batch=batch, max_context=_CONTEXT, pages=batch * _CONTEXT // 16 + 1, lookahead=True)
        with patch.object(runner, "_can_capture", lambda model: True), patch.object(runner, "Graphs", _Kept):
            self.engine = Engine(model, config)
        self._outputs: list[Output] = []
        self._loop = EngineThread(self.engine, self._outputs.extend)
        self.batch = batch

    def rounds(self, asked: Sequence[Request]) -> Iterator[list[Output]]:
        """Run requests; yield the outputs of each round."""
        for request in asked:
            self.engine.submit(request)
        while not self.engine.idle:
            self._loop._run_round()
            yield self._outputs.copy()
            self._outputs.clear()

    @property
    def only_decodes(self) -> bool:
        """True if all requests have begun, and none has ended."""
        stats = self.engine.stats
        return stats.running == self.batch and not stats.waiting

    def report(self, outputs: list[Output]) -> None:
        """Pack a report, as the engine's process does for each step."""
        frames._pack(Report(self._loop.progress, outputs, self._loop.figures))


_BESIDE: Final = (
    ("captured work", _Kept, ("replay",)),
    ("copies to the device", StaticBuffers, ("send",)),
    ("reports, in another thread", _Bench, ("report",)),
)


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Check, measure and print; return the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="llama-1b", help="the name of the model with this vocabulary")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--temperature", type=float, default=1.0, help="0 gives all revisions the same texts")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--out", type=Path, help="file for the figures; by default in the folder $OUT")
    arguments = parser.parse_args(argv)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        model = SummingModel(Path(folder), arguments.model, max_context=_CONTEXT)
    keep_what_is_loaded()
    found = measure(model, arguments)
    document = {"kind": "host-work", "batch": arguments.batch, "machine": machine("cpu"), "microseconds": found}
    write_json(document, arguments.out, "host-work")
    print("\n".join(_table(found)))
    return document


def measure(model: SummingModel, arguments: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Return the microseconds of a step by kind of text and by part; raises `WrongAnswers` first."""
    bench = _Bench(model, arguments.batch)
    _check(bench, model)
    kinds = {"free text": None, "JSON": grammar_of(FIELDS, MOST_CHARACTERS)}
    requests = {name: _requests(name, grammar, arguments.temperature) for name, grammar in kinds.items()}
    times: dict[str, list[dict[str, float]]] = {name: [] for name in kinds}
    for _ in range(arguments.rounds + 1):
        for name, own in requests.items():
            times[name].append(_timed(bench, list(islice(own, arguments.batch))))
    return {name: _medians(found[1:]) for name, found in times.items()}  # the first ones warm it up


def _timed(bench: _Bench, asked: Sequence[Request]) -> dict[str, float]:
    """Return the mean time of each part, over the steps in which all requests decode."""
    parts, steps = TimedParts(), list[dict[str, int]]()
    with ExitStack() as stack:
        for part, owner, methods in (*_PARTS, *_BESIDE):
            stack.enter_context(parts.measuring(part, owner, *methods))
        stack.enter_context(patch.object(Choice, "next", lambda choice: _IN_THIS_THREAD))
        for outputs in bench.rounds(asked):
            bench.report(outputs)
            spent = parts.take()
            if bench.only_decodes:
                steps.append(spent)
    decodes = steps[2:]  # the first ones prefill
    return {name: fmean(step.get(name, 0) for step in decodes) / 1e3 for name in (*_names(), *_beside())}


def _check(bench: _Bench, model: SummingModel) -> None:
    free = list(islice(_requests("check", None), _CHECKED))
    fields, most = FIELDS[:2], 5
    forms = list(islice(_requests("check-json", grammar_of(fields, most)), _CHECKED))
    ended = {
        output.id: output
        for outputs in bench.rounds([*free, *forms])
        for output in outputs
        if isinstance(output, Finished)
    }
    for request in free:
        if ended[request.id].text != model.answer(request):
            raise WrongAnswers(f"{ended[request.id].text!r} is not {model.answer(request)!r}")
    for request in forms:
        answer = json.loads(ended[request.id].text)
        if tuple(answer) != fields or any(len(value) > most for value in answer.values()):
            raise WrongAnswers(f"an answer does not follow its schema: {answer}")


def _requests(name: str, grammar: Grammar | None, temperature: float = 1.0) -> Iterator[Request]:
    """Yield streamed requests; at a temperature each row needs its own random number."""
    for number in count():
        sampling = Sampling(temperature=temperature, top_p=0.9, max_tokens=_TOKENS, seed=number, grammar=grammar)
        yield Request(f"{name}-{number}", Chat((Message("user", (f"{number} {_PROMPT}",)),)), (), sampling)


def _names() -> list[str]:
    return [part for part, _, _ in _PARTS]


def _beside() -> list[str]:
    return [part for part, _, _ in _BESIDE]


def _medians(rounds: Sequence[dict[str, float]]) -> dict[str, float]:
    found = {name: median(times[name] for times in rounds) for name in rounds[0]}
    return {**found, "sum": median(sum(times[name] for name in _names()) for times in rounds)}


def _table(found: dict[str, dict[str, float]]) -> list[str]:
    kinds = list(found)
    rows = [*_names(), "sum", *_beside()]
    lines = ["| us a step | " + " | ".join(kinds) + " |", "|---" * (len(kinds) + 1) + "|"]
    return lines + [f"| {row} | " + " | ".join(f"{found[kind][row]:.0f}" for kind in kinds) + " |" for row in rows]


if __name__ == "__main__":
    main()
