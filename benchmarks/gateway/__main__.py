"""Measures the gateway on this machine, with an engine that answers at once.

    python -m benchmarks.gateway latency [--count 300]
    python -m benchmarks.gateway grpc [--count 300] [--seconds 5]
    python -m benchmarks.gateway ramp [--seconds 5] [--most 256] [--stream] [--p95-ms 500] --out ramp
    python -m benchmarks.gateway streams [--count 1000]
    python -m benchmarks.gateway memory [--count 100000]
    python -m benchmarks.gateway pages [--count 10000]      needs Chromium
    python -m benchmarks.gateway triton [--count 300] [--callers 32] [--seconds 5]

`ramp` writes `ramp.json` and `ramp.html`. Load generator, worker, Redis and gateway share the machine.
"""

import argparse
import asyncio
import json
from pathlib import Path
from typing import Any

from benchmarks.gateway.latency import measure_latency
from benchmarks.gateway.memory import measure_memory
from benchmarks.gateway.ramp import Thresholds, measure_ramp
from benchmarks.gateway.ramp_report import write_page
from benchmarks.gateway.stack import Stack, running_stack
from benchmarks.gateway.streams import measure_streams

__all__ = ["main"]


def main(argv: list[str] | None = None) -> None:
    """Measure, print JSON, and write the report of a ramp."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["latency", "grpc", "ramp", "streams", "memory", "pages", "triton"])
    parser.add_argument("--count", type=int)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--callers", type=int, default=32)
    parser.add_argument("--most", type=int, default=256)
    parser.add_argument("--stream", action="store_true")
    parser.add_argument("--errors", type=float, default=0.01)
    parser.add_argument("--p95-ms", type=float, default=500.0)
    parser.add_argument("--first-p95-ms", type=float, default=500.0)
    parser.add_argument("--out", type=Path, default=Path("ramp"))
    arguments = parser.parse_args(argv)
    with running_stack(*(["--grpc", "127.0.0.1:0"] if arguments.what == "grpc" else [])) as stack:
        report = asyncio.run(_measure(stack, arguments))
    print(json.dumps(report, indent=2))
    if arguments.what == "ramp":
        arguments.out.with_suffix(".json").write_text(json.dumps(report, indent=2))
        arguments.out.with_suffix(".html").write_text(write_page(report))


async def _measure(stack: Stack, arguments: argparse.Namespace) -> dict[str, Any]:
    if arguments.what == "latency":
        return await measure_latency(stack, arguments.count or 300)
    if arguments.what == "grpc":
        from benchmarks.gateway.grpc_latency import measure_grpc  # the others need no gRPC

        return await measure_grpc(stack, arguments.count or 300, arguments.seconds)
    if arguments.what == "streams":
        return await measure_streams(stack, arguments.count or 1000)
    if arguments.what == "memory":
        return await measure_memory(stack, arguments.count or 100_000)
    if arguments.what == "pages":
        from benchmarks.gateway.pages import measure_pages  # the others need no browser

        return await measure_pages(stack, arguments.count or 10_000)
    if arguments.what == "triton":
        from benchmarks.gateway.triton import measure_triton  # the others need no pytest

        return await measure_triton(stack, arguments.count or 300, arguments.callers, arguments.seconds)
    thresholds = Thresholds(arguments.errors, arguments.p95_ms, arguments.first_p95_ms)
    given = {"seconds": arguments.seconds, "most": arguments.most, "stream": arguments.stream}
    return await measure_ramp(stack, thresholds, **given)


if __name__ == "__main__":
    main()
