"""Turns figures into plots and tables for PERFORMANCE.md.

    python -m benchmarks.report figures/ --plots plots/

Reads every JSON in the folder, as written by the benchmarks, and prints Markdown; with --plots (which needs matplotlib,
`pip install 'stoop[bench]'`) draws throughput by requests in flight, and latency against throughput.
"""

import argparse
import importlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["main", "markdown"]

Document = Mapping[str, Any]
_KINDS = ("closed", "open", "decode", "queue", "profile", "memory")


def main(argv: list[str] | None = None) -> None:
    """Read the figures, print tables, draw plots."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--plots", type=Path, help="folder for PNG plots")
    arguments = parser.parse_args(argv)
    documents = _read(arguments.folder)
    print(markdown(documents))
    if arguments.plots:
        arguments.plots.mkdir(parents=True, exist_ok=True)
        for path in _draw(documents, arguments.plots):
            print(f"wrote {path}")


def _read(folder: Path) -> list[Document]:
    found = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("*.json"))]
    documents: list[Document] = [
        document for document in found if isinstance(document, dict) and document.get("kind") in _KINDS
    ]
    if not documents:
        raise SystemExit(f"{folder} has no figures")
    return documents


def markdown(documents: Sequence[Document]) -> str:
    """Return a table for each kind of figures, grouped by machine."""
    tables: dict[str, Callable[[Sequence[Document]], str]] = {
        "closed": _closed,
        "open": _open,
        "decode": _decode,
        "queue": _queue,
        "profile": _profile,
        "memory": _memory,
    }
    parts = ["\n".join(sorted({_machine(document) for document in documents}))]
    for kind in _KINDS:
        own = [document for document in documents if document["kind"] == kind]
        if own:
            parts.append(tables[kind](own))
    return "\n\n".join(parts)


def _machine(document: Document) -> str:
    facts = document["machine"]
    versions = ", ".join(f"{name} {facts[name]}" for name in ("torch", "triton", "flashinfer") if facts.get(name))
    return f"{facts['device']}, {facts['cores']} cores of {facts['processor']}, {versions}, {facts['date'][:10]}"


def _label(document: Document) -> str:
    """Return a run's workload and its unusual settings."""
    engine = ", ".join(f"{name}={value}" for name, value in document.get("engine", {}).items())
    return f"{document['workload']} ({document['dtype']}{', ' + engine if engine else ''})"


def _closed(documents: Sequence[Document]) -> str:
    return _table(
        (
            "workload",
            "in flight",
            "req/s",
            "tok/s",
            "latency p50/p95/p99 ms",
            "TTFT p50/p95 ms",
            "per token p50/p99 ms",
        ),
        (
            (
                _label(document),
                f"{figures['offered']:g}",
                f"{figures['requests_per_second']:.1f}",
                f"{figures['tokens_per_second']:.0f}",
                _times(figures["latency"], "p50", "p95", "p99"),
                _times(figures["ttft"], "p50", "p95"),
                _times(figures["inter_token"], "p50", "p99"),
            )
            for document in documents
            for figures in document["figures"]
        ),
    )


def _open(documents: Sequence[Document]) -> str:
    return _table(
        ("workload, open loop", "arrivals/s", "answered/s", "latency p50/p95/p99 ms", "TTFT p50/p95 ms", "left"),
        (
            (
                _label(document),
                f"{figures['offered']:.1f}",
                f"{figures['requests_per_second']:.1f}",
                _times(figures["latency"], "p50", "p95", "p99"),
                _times(figures["ttft"], "p50", "p95"),
                str(figures["left"]),
            )
            for document in documents
            for figures in document["figures"]
        ),
    )


def _decode(documents: Sequence[Document]) -> str:
    return _table(
        ("decode", "batch", "mean context", "tok/s", "step p50/p95/p99 ms"),
        (
            (
                _label(document),
                str(figures["batch"]),
                f"{figures['mean_context']:.0f}",
                f"{figures['tokens_per_second']:.0f}",
                _times(figures["step"], "p50", "p95", "p99"),
            )
            for document in documents
            for figures in document["figures"]
        ),
    )


def _queue(documents: Sequence[Document]) -> str:
    return _table(
        ("through Redis and S3", "in flight", "jobs/s", "engine alone", "share", "worker CPU a job: front + engine"),
        (
            (
                _label(document),
                f"{document['figures'][0]['offered']:g}",
                f"{document['figures'][0]['requests_per_second']:.1f}",
                f"{document['engine_direct']['requests_per_second']:.1f}",
                f"{document['share_of_engine']:.1%}",
                f"{document['front_cpu_ms_per_job']:.2f} + {document['engine_cpu_ms_per_job']:.2f} ms",
            )
            for document in documents
        ),
    )


def _profile(documents: Sequence[Document]) -> str:
    parts = []
    for document in documents:
        stages = sorted(document["stages"].items(), key=lambda named: -named[1]["kernel_ms"])
        rows = (
            (name, str(stage["launches"]), f"{stage['kernel_ms']:.1f}", f"{stage['share_of_wall']:.1%}")
            for name, stage in stages
        )
        idle = f"No kernel ran in {document['idle_share']:.1%} of {document['wall_ms']:.0f} ms."
        title = f"{_label(document)}, {document['concurrency']} in flight"
        parts.append(f"{_table((title, 'kernels', 'ms', 'of the time'), rows)}\n\n{idle}")
    return "\n\n".join(parts)


def _memory(documents: Sequence[Document]) -> str:
    return _table(
        ("memory after requests", "allocated MB", "reserved MB", "process MB"),
        (
            (str(held["requests"]), *(f"{held[name] / 1e6:.0f}" for name in ("allocated", "reserved", "resident")))
            for document in documents
            for held in document["held"]
        ),
    )


def _times(quantiles: Mapping[str, float] | None, *names: str) -> str:
    return "-" if quantiles is None else " / ".join(f"{quantiles[name]:.3g}" for name in names)


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _draw(documents: Sequence[Document], folder: Path) -> list[Path]:
    """Draw the closed and the open loops; other figures have no curve."""
    matplotlib = importlib.import_module("matplotlib")
    matplotlib.use("Agg")
    plots: tuple[tuple[str, str, Callable[[Any, Sequence[Document]], bool]], ...] = (
        ("throughput.png", "closed", _throughput_by_load),
        ("latency.png", "closed", _latency_by_throughput),
        ("latency-open.png", "open", _latency_by_throughput),
    )
    written = []
    for name, kind, draw in plots:
        figure, axes = importlib.import_module("matplotlib.pyplot").subplots(figsize=(8, 5), layout="constrained")
        if draw(axes, [document for document in documents if document["kind"] == kind]):
            axes.grid(alpha=0.3)
            axes.legend()
            figure.savefig(folder / name, dpi=120)
            written.append(folder / name)
    return written


def _throughput_by_load(axes: Any, documents: Sequence[Document]) -> bool:
    for document in documents:
        loads = [figures["offered"] for figures in document["figures"]]
        axes.plot(
            loads, [figures["requests_per_second"] for figures in document["figures"]], "o-", label=_label(document)
        )
    axes.set(xscale="log", xlabel="requests in flight", ylabel="requests a second", ylim=(0, None))
    return bool(documents)


def _latency_by_throughput(axes: Any, documents: Sequence[Document]) -> bool:
    for document in documents:
        rates = [figures["requests_per_second"] for figures in document["figures"]]
        for name, style in (("p50", "o-"), ("p95", "s--")):
            times = [figures["latency"][name] for figures in document["figures"]]
            axes.plot(rates, times, style, label=f"{_label(document)} {name}")
    axes.set(yscale="log", xlabel="requests a second", ylabel="latency, ms")
    return bool(documents)


if __name__ == "__main__":
    main()
