"""Measures the engine's speed in closed loops of given concurrency, or with random arrivals at rising rates.

    python -m benchmarks.engine.run direct --concurrency 1,4,16,64,256 --requests 400
    python -m benchmarks.engine.run direct --open-loop --rate 20 --rate-seconds 10
    python -m benchmarks.engine.run direct cot decode --concurrency 1,64
    python -m benchmarks.engine.run decode --concurrency 64 --adapters 8

Several workloads share one engine, which saves its start. Nothing is timed unless the answers are right. The first
`concurrency` requests warm each closed loop up. They are left out, like the requests in flight at its end. The last
lines of each workload are a table; --out writes JSON.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import count, islice
from statistics import median
from typing import Any, TypeVar

from benchmarks.energy import EnergyMeter
from benchmarks.engine.bench import Bench, add_flags, photos_of
from benchmarks.engine.decode_rate import DecodeRate, decode_lines, decode_rate, rounds_of
from benchmarks.engine.engine_run import EngineRun, Record
from benchmarks.engine.workloads import WORKLOADS, Ask, Workload
from benchmarks.figures import Figures, lines, machine, summarise, write_json

__all__ = ["closed_loop", "fell_behind", "main"]

_FASTER = 1.25  # ratio of each rate of the open loop to the previous one
_MOST_RATES = 24
_LONGER, _ANSWERED = 1.5, 0.95  # waits of the last quarter over the second one's; ends over arrivals
_WARM_UP = 64
_CHECKED = 6
_DECODE = "decode"

_Ask = TypeVar("_Ask")


def main(argv: list[str] | None = None) -> list[dict[str, Any]]:
    """Measure and print; return the figures of each workload."""
    arguments = _parser().parse_args(argv)
    workloads = [WORKLOADS[name] for name in arguments.workloads]
    if arguments.out and len(workloads) > 1:
        raise SystemExit("--out takes the figures of one workload: set OUT to a folder for those of several")
    loads = [int(load) for load in arguments.concurrency.split(",")]
    bench = Bench.of(arguments)
    # no two workloads ask the same question, so a photo of one is not in the cache when the next begins
    numbers = count()
    return [_measured(bench, workload, numbers, loads) for workload in workloads]


def _measured(bench: Bench, workload: Workload, numbers: Iterator[int], loads: list[int]) -> dict[str, Any]:
    arguments = bench.arguments
    first = next(numbers)
    asked = range(first, first + _CHECKED + _needed(workload, loads, arguments))
    # with more photos than the cache holds, a repeated one is no longer in it
    most = bench.held_images + 2 * max(loads)
    photos = photos_of(map(workload.ask, asked), arguments.photos, most=most)
    checked = bench.check(map(workload.ask, asked[:_CHECKED]), photos)
    asks = bench.adapted(map(workload.ask, islice(numbers, _CHECKED - 1, None)))
    with bench.run(photos) as running:
        found, table = _measure(running, workload, asks, loads, arguments)
    if not workload.repeats and any(getattr(figures, "cached_requests", 0) for figures in found):
        raise SystemExit(
            f"{workload.name}: some photos were in the cache, so the times are not valid: use fewer --requests"
        )
    document = {
        "kind": _kind(workload, arguments),
        "workload": workload.name,
        "about": workload.about,
        **bench.settings,
        "machine": machine(arguments.device),
        "checked": asdict(checked),
        "figures": [asdict(figures) for figures in found],
    }
    write_json(document, arguments.out, arguments.label or f"run-{workload.name}-{document['kind']}")
    print(f"{workload.name}: {workload.about}. {arguments.model}, {arguments.dtype}, {document['machine']['device']}")
    print("\n".join(table), flush=True)
    return document


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", choices=WORKLOADS, nargs="+")
    parser.add_argument("--concurrency", default="1,4,16,64,256", help="requests in flight, one load after another")
    parser.add_argument("--requests", type=int, default=400, help="for each load; at least twice its concurrency")
    parser.add_argument("--open-loop", action="store_true", help="arrivals at random until the engine falls behind")
    parser.add_argument("--rate", type=float, default=5.0, help="first arrivals a second of the open loop")
    parser.add_argument("--rate-seconds", type=float, default=10.0, help="for each rate of the open loop")
    parser.add_argument("--label", help="name of the figures' file")
    add_flags(parser)
    return parser


def _kind(workload: Workload, arguments: argparse.Namespace) -> str:
    if workload.name == _DECODE:
        return "decode"
    return "open" if arguments.open_loop else "closed"


def _needed(workload: Workload, loads: list[int], arguments: argparse.Namespace) -> int:
    """Return the number of questions to prepare; a ramp may ask more, and then repeats photos."""
    decodes = workload.name == _DECODE
    closed = sum(max(arguments.requests, 2 * load) + 2 * load + 1 for load in loads)
    return 2 * min(max(loads), _WARM_UP) + (sum(load * rounds_of(load) for load in loads) if decodes else closed)


def _measure(
    running: EngineRun[Ask], workload: Workload, asks: Iterator[Ask], loads: list[int], arguments: argparse.Namespace
) -> tuple[list[Figures] | list[DecodeRate], list[str]]:
    """Return the figures, and a table of them."""
    most = min(max(loads), _WARM_UP)
    if workload.name == _DECODE:
        running.together(list(islice(asks, most)))
        rates = [decode_rate(running, asks, load) for load in loads]
        return rates, decode_lines(rates)
    running.closed_loop(asks, most, most=1, seconds=arguments.seconds)
    if arguments.open_loop:
        found = list(_ramp(running, asks, arguments.rate, arguments.rate_seconds))
    else:
        wanted, seconds = arguments.requests, arguments.seconds
        with EnergyMeter(arguments.device) as meter:
            found = [closed_loop(running, asks, load, requests=wanted, seconds=seconds, meter=meter) for load in loads]
    return found, lines(found)


def closed_loop(
    running: EngineRun[_Ask],
    asks: Iterator[_Ask],
    load: int,
    *,
    requests: int,
    seconds: float,
    meter: EnergyMeter | None = None,
) -> Figures:
    """Measure `requests` requests (at least twice the load) that end after the first `load` ones."""
    records = running.closed_loop(asks, load, most=load + max(requests, 2 * load), seconds=seconds)
    if len(records) <= load:
        raise SystemExit(f"only {len(records)} of {load} requests in flight ended in {seconds:g} s: raise --seconds")
    return summarise(records[load:], load, began=records[load - 1].ended, meter=meter)


def _ramp(running: EngineRun[Ask], asks: Iterator[Ask], rate: float, seconds: float) -> Iterator[Figures]:
    """Raise the rate until the engine falls behind."""
    for step in range(_MOST_RATES):
        records, left = running.open_loop(asks, rate, seconds=seconds, seed=step)
        if not records:
            raise SystemExit(
                f"no request arrived in {seconds:g} s at {rate:g} a second: raise --rate or --rate-seconds"
            )
        figures = summarise(records, rate, began=records[0].arrived, open_loop=True, left=left)
        yield figures
        if fell_behind(records, seconds):
            return
        rate *= _FASTER


def fell_behind(records: Sequence[Record], seconds: float) -> bool:
    """Return whether requests, arriving evenly for `seconds`, waited longer and longer, and ended too slowly."""
    began = records[0].arrived
    waits = [
        [record.ended - record.arrived for record in records if first <= (record.arrived - began) / seconds < end]
        for first, end in ((0.25, 0.5), (0.75, 1.0))
    ]
    if not all(waits):
        return False
    middle, end = began + seconds / 2, began + seconds
    arrived = sum(record.arrived >= middle for record in records)
    ended = sum(middle <= record.ended < end for record in records)
    return median(waits[1]) > _LONGER * median(waits[0]) and ended < _ANSWERED * arrived


if __name__ == "__main__":
    main()
