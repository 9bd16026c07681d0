"""Sums up records as figures, and writes figures to a file together with their machine."""

import importlib.metadata
import json
import os
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.energy import EnergyMeter
from benchmarks.engine.engine_run import Record

__all__ = ["Figures", "Quantiles", "lines", "machine", "summarise", "write_json"]


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Quantiles of times, in milliseconds."""

    p50: float
    p95: float
    p99: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> "Quantiles | None":
        """Return the quantiles by nearest rank; None if there are no times."""
        if not seconds:
            return None
        ordered = sorted(seconds)
        return cls(*(1e3 * ordered[round(share * (len(ordered) - 1))] for share in (0.5, 0.95, 0.99)))


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one load; `offered` is the requests in flight or, with `open_loop`, the arrivals a second.

    Latency runs from the JPEG's bytes to the last output. `cached_requests` found their photo in the prefix cache.
    `cached_share` is the part of all input tokens that the cache had. `left` requests were waiting or running when the
    arrivals ended. `joules_per_request` is the GPU's energy in that time; None if it was not measured.
    """

    offered: float
    open_loop: bool
    requests: int
    seconds: float
    requests_per_second: float
    tokens_per_second: float
    cached_requests: int
    latency: Quantiles | None
    ttft: Quantiles | None
    inter_token: Quantiles | None
    left: int = 0
    cached_share: float = 0.0
    joules_per_request: float | None = None


def summarise(
    records: Sequence[Record],
    offered: float,
    *,
    began: float,
    open_loop: bool = False,
    left: int = 0,
    meter: EnergyMeter | None = None,
) -> Figures:
    """Sum up requests that ended between `began` (seconds, on their clock) and the last end.

    The rates and the energy of a closed loop are those of whole rounds.
    """
    ends = [began, *sorted(record.ended for record in records)]
    windows, requests = ([(ends[0], ends[-1])], len(records)) if open_loop else _rounds(ends, int(offered))
    rate = requests / fmean(ended - began for began, ended in windows)
    energies = [None if meter is None else meter.joules(*window) for window in windows]
    measured = [energy for energy in energies if energy is not None]
    return Figures(
        offered=offered,
        open_loop=open_loop,
        requests=len(records),
        seconds=ends[-1] - began,
        requests_per_second=rate,
        tokens_per_second=rate * fmean(record.tokens for record in records),
        cached_requests=sum(record.cached_tokens > 0 for record in records),
        latency=Quantiles.of([record.ended - record.arrived for record in records]),
        ttft=Quantiles.of([record.ttft for record in records]),
        inter_token=Quantiles.of([gap for record in records for gap in _gaps(record)]),
        left=left,
        cached_share=sum(record.cached_tokens for record in records)
        / max(1, sum(record.input_tokens for record in records)),
        joules_per_request=fmean(measured) / requests if len(measured) == len(windows) else None,
    )


def _rounds(ends: Sequence[float], load: int) -> tuple[list[tuple[float, float]], int]:
    """Return windows in which the same number of requests end, and this number; `load` requests are always in flight.

    Requests end together if their images are encoded together. A window that begins inside such a group counts up to a
    group too many, and one that ends inside it too few. So there is a window for each beginning within a round, and
    their mean does not depend on the groups. A round is `load` ends: each request in flight then ends once.
    """
    rounds = (len(ends) - load) // load
    if rounds < 1:
        return [(ends[0], ends[-1])], len(ends) - 1
    count = rounds * load
    return list(zip(ends, ends[count : count + load], strict=False)), count


def _gaps(record: Record) -> list[float]:
    """Return the times between tokens; none if outputs do not correspond to tokens."""
    if len(record.output_times) != record.tokens:
        return []
    return [later - earlier for earlier, later in pairwise(record.output_times)]


def machine(device: str) -> dict[str, Any]:
    """Return the versions, the machine and the date of a run."""
    import torch

    cuda = device.startswith("cuda")
    return {
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "device": torch.cuda.get_device_name() if cuda else _processor(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda if cuda else None,
        "triton": _version("triton"),
        "flashinfer": _version("flashinfer-python"),
    }


def _processor() -> str:
    try:
        facts = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    names = [fact.partition(":")[2].strip() for fact in facts if fact.startswith("model name")]
    return names[0] if names else platform.machine()


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def write_json(document: Mapping[str, Any], out: Path | None, name: str) -> None:
    """Write to `out`, or to `name`.json in the folder named by the variable OUT, or nowhere."""
    folder = os.environ.get("OUT")
    path = out or (Path(folder) / f"{name}.json" if folder else None)
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(document, indent=2, default=asdict) + "\n", encoding="utf-8")
        print(f"wrote {path}")


def lines(found: Sequence[Figures]) -> list[str]:
    """Return a table, with times in milliseconds."""
    columns = "".join(f"{name:>22}" for name in ("latency p50/95/99", "TTFT p50/95/99", "per token p50/95/99"))
    return [f"{'load':>9}{'requests':>9}{'req/s':>9}{'tok/s':>9}{columns}  cached  left   J/req", *map(_line, found)]


def _line(figures: Figures) -> str:
    times = "".join(f"{_times(each):>22}" for each in (figures.latency, figures.ttft, figures.inter_token))
    rates = f"{figures.requests_per_second:>9.2f}{figures.tokens_per_second:>9.1f}"
    joules = "-" if figures.joules_per_request is None else f"{figures.joules_per_request:.2f}"
    load = f"{figures.offered:.3g}{'/s' if figures.open_loop else ''}"
    return f"{load:>9}{figures.requests:>9}{rates}{times}{figures.cached_requests:>8}{figures.left:>6}{joules:>8}"


def _times(quantiles: Quantiles | None) -> str:
    return "-" if quantiles is None else "/".join(f"{value:.4g}" for value in asdict(quantiles).values())
