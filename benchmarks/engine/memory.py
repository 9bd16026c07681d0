"""Measures memory over many short requests: half about one photo, half about small pictures that all differ.

    python -m benchmarks.engine.memory --requests 10000

Reads the memory of the device and of the process after a tenth, after half, and at the end. Ends with an error if
either has grown in the second half, because every cache is full by the middle.
"""

import argparse
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import Any, Final

import torch

from benchmarks.engine.bench import Bench, add_flags, photos_of
from benchmarks.engine.engine_run import EngineRun
from benchmarks.engine.photos import SMALL
from benchmarks.engine.workloads import Ask
from benchmarks.figures import machine, write_json
from stoop_worker.engine.request import Query

__all__ = ["Held", "grown", "main"]

_IN_FLIGHT = 64
_ALLOWED: Final = {"allocated": 1 << 20, "reserved": 64 << 20, "resident": 96 << 20}
"""Bytes by which each may grow between the middle and the end."""


@dataclass(frozen=True, slots=True)
class Held:
    """Bytes held after `requests` requests, by torch on the device and by the process."""

    requests: int
    allocated: int
    reserved: int
    resident: int

    @classmethod
    def now(cls, requests: int, device: str) -> "Held":
        """Read the memory; nothing may be in flight."""
        cuda = device.startswith("cuda")
        return cls(
            requests,
            torch.cuda.memory_allocated() if cuda else 0,
            torch.cuda.memory_reserved() if cuda else 0,
            int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"),
        )


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Run and measure; end with an error if memory has grown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=10_000)
    add_flags(parser)
    arguments = parser.parse_args(argv)
    bench = Bench.of(arguments)
    photos = photos_of(map(_ask, range(arguments.requests)), arguments.photos, most=bench.held_images + _IN_FLIGHT)
    bench.check(map(_ask, range(4)), photos)
    with bench.run(photos) as running:
        held = _watch(running, arguments)
    found = grown(held)
    document = {
        "kind": "memory",
        **bench.settings,
        "machine": machine(arguments.device),
        "held": [asdict(each) for each in held],
        "grown": found,
    }
    write_json(document, arguments.out, "memory")
    print("\n".join(_table(held)))
    if found:
        raise SystemExit(f"memory grew in the second half: {', '.join(found)}")
    return document


def _ask(number: int) -> Ask:
    """Return a request; every other one is about the first picture."""
    return Ask(Query(f"What is {number}?"), photo=0 if number % 2 else 1 + number // 2, shape=SMALL, tokens=2)


def _watch(running: EngineRun[Ask], arguments: argparse.Namespace) -> list[Held]:
    asks = map(_ask, count())
    done, held = 0, []
    for upto in (arguments.requests // 10, arguments.requests // 2, arguments.requests):
        most = upto - done
        done += len(running.closed_loop(asks, min(_IN_FLIGHT, most), most=most, seconds=arguments.seconds))
        held.append(Held.now(done, arguments.device))
    return held


def grown(held: list[Held]) -> list[str]:
    """Return the names of the figures that grew by more than allowed between the last two readings."""
    middle, end = (asdict(each) for each in held[-2:])
    return [name for name, allowed in _ALLOWED.items() if end[name] - middle[name] > allowed]


def _table(held: list[Held]) -> list[str]:
    columns: tuple[tuple[str, Callable[[Held], int]], ...] = (
        ("allocated", lambda each: each.allocated),
        ("reserved", lambda each: each.reserved),
        ("resident", lambda each: each.resident),
    )
    lines = [f"{'requests':>9}" + "".join(f"{name + ' MB':>14}" for name, _ in columns)]
    for each in held:
        lines.append(f"{each.requests:>9}" + "".join(f"{of(each) / 1e6:>14.1f}" for _, of in columns))
    return lines


if __name__ == "__main__":
    main()
