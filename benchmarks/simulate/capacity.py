"""Answers what happens at N jobs a day: a table up to 10^9, and with --picture a drawing of where each limit breaks.

    python -m benchmarks.simulate.capacity --picture docs/pictures/capacity.webp

The costs of a job are those of `costs.py`. A day has its busiest moment at `--peak` times its mean. There are as many
GPUs as the peak needs at 85 % of their rate, and as many partitions as keep each below 60 % of a core at the peak.
Then one partition's share of the day, shortened to `--day` seconds, goes through the simulation, with its share of the
GPUs: all partitions are alike.
"""

import argparse
import importlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.simulate.arrivals import arrivals, daily, gamma_times
from benchmarks.simulate.costs import BULK, GPU_RATES, STREAMED, WAITED_FOR, JobCost
from benchmarks.simulate.model import Fleet, Outcome, quantile, simulate

__all__ = ["Plan", "main", "plan", "simulate_share"]

_DAY, _HOUR = 86_400, 3_600
_GIB = 1 << 30
_GPU_SHARE, _CORE_SHARE = 0.85, 0.6
_PLACES, _OVERHEAD, _PICKUP = 64, 0.01, 0.01
_MODEL = "moondream2, 3 tokens"
_KINDS = {"waited for": WAITED_FOR, "streamed": STREAMED, "bulk": BULK}


@dataclass(frozen=True, slots=True)
class Plan:
    """The hardware for a number of jobs a day; memory is in GiB, with results kept for a day or for an hour."""

    jobs_per_day: float
    peak_rate: float
    gpus: int
    redis_cores: float
    partitions: int
    day_memory: float
    hour_memory: float
    log_memory: float
    network_gbit: float


def plan(jobs_per_day: float, peak: float, cost: JobCost, gpu_rate: float) -> Plan:
    """Return the means for a number of jobs a day whose busiest moment has `peak` times the mean."""
    mean = jobs_per_day / _DAY
    cores = peak * mean * cost.redis_us / 1e6
    kept = mean * (cost.result_bytes + cost.state_bytes) / _GIB
    return Plan(
        jobs_per_day,
        peak * mean,
        math.ceil(peak * mean / (_GPU_SHARE * gpu_rate)),
        cores,
        math.ceil(cores / _CORE_SHARE),
        kept * _DAY,
        kept * _HOUR,
        mean * cost.log_bytes * _HOUR / _GIB,
        8 * peak * mean * cost.network_bytes / 1e9,
    )


def simulate_share(found: Plan, peak: float, cost: JobCost, gpu_rate: float, day: float) -> Outcome:
    """Simulate one partition's share of a day that is shortened to `day` seconds."""
    share = found.jobs_per_day / found.partitions
    workers = max(1, round(found.gpus / found.partitions))
    service = _PLACES / gpu_rate
    jobs = arrivals(daily(share, peak, day), peak * share / _DAY, day, gamma_times(service, 4.0))
    half = cost.redis_us / 2
    return simulate(jobs, Fleet(workers, _PLACES, _OVERHEAD, _PICKUP, submit_us=half, settle_us=half))


def main() -> None:
    """Print the tables; draw the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=float, nargs="+", default=[1e6, 1e7, 1e8, 1e9], help="jobs a day")
    parser.add_argument("--peak", type=float, default=3.0)
    parser.add_argument("--model", choices=sorted(GPU_RATES), default=_MODEL)
    parser.add_argument("--kind", choices=sorted(_KINDS), default="bulk")
    parser.add_argument("--day", type=float, default=600.0, help="seconds of a simulated day; 0: no simulation")
    parser.add_argument("--picture", type=Path, help="file for the picture (needs matplotlib)")
    given = parser.parse_args()
    rate, cost = GPU_RATES[given.model], _KINDS[given.kind]
    plans = [plan(jobs, given.peak, cost, rate) for jobs in given.jobs]
    print(f"{given.kind} jobs, {given.model}, busiest moment {given.peak:g} times the mean")
    _print(plans)
    if given.day:
        print(
            f"\n{'jobs a day':>10} {'age p50 ms':>11} {'p95':>7} {'p99':>7}  GPUs busy  Redis busy   (simulated share)"
        )
    for each in plans if given.day else ():
        _print_outcome(each, simulate_share(each, given.peak, cost, rate, given.day), given.day)
    if given.picture:
        _draw(given.picture, given.peak)


def _print(plans: Sequence[Plan]) -> None:
    print("jobs a day  peak/s   GPUs  Redis cores  partitions  GiB, 1 day  GiB, 1 hour  GiB of logs  Gbit/s")
    for each in plans:
        print(
            f"{each.jobs_per_day:>10.0e} {each.peak_rate:>7,.0f} {each.gpus:>6} {each.redis_cores:>12.2f}"
            f" {each.partitions:>11} {each.day_memory:>11.1f} {each.hour_memory:>12.2f} {each.log_memory:>12.1f}"
            f" {each.network_gbit:>7.2f}"
        )


def _print_outcome(found: Plan, outcome: Outcome, day: float) -> None:
    ages = [1000 * quantile(outcome.ages, share) for share in (0.5, 0.95, 0.99)]
    workers = max(1, round(found.gpus / found.partitions))
    busy = outcome.busy / (workers * _PLACES * day)
    print(
        f"{found.jobs_per_day:>10.0e} {ages[0]:>11.0f} {ages[1]:>7.0f} {ages[2]:>7.0f} {busy:>10.0%}"
        f" {outcome.redis_busy / day:>11.0%}"
    )


def _draw(path: Path, peak: float) -> None:
    matplotlib: Any = importlib.import_module("matplotlib")
    matplotlib.use("Agg")
    pyplot: Any = importlib.import_module("matplotlib.pyplot")
    figure, (memory, cores, gpus) = pyplot.subplots(1, 3, figsize=(15, 5), layout="constrained")
    days = [10 ** (6 + step / 10) for step in range(31)]
    _draw_memory(memory, days, peak)
    for kind, cost in _KINDS.items():
        cores.plot(days, [plan(day, peak, cost, 1).redis_cores for day in days], label=kind)
    cores.axhline(_CORE_SHARE, color="black", linestyle=":", label="one partition at 60 %")
    cores.set(ylabel="cores of Redis at the peak", title="Redis CPU")
    for model, rate in GPU_RATES.items():
        gpus.plot(days, [plan(day, peak, BULK, rate).gpus for day in days], label=model)
    gpus.set(ylabel="H200s at the peak", title="GPUs")
    for axes in (memory, cores, gpus):
        axes.set(xscale="log", yscale="log", xlabel="jobs a day")
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=90)
    print(f"wrote {path}")


def _draw_memory(axes: Any, days: Sequence[float], peak: float) -> None:
    plans = {kind: [plan(day, peak, cost, 1) for day in days] for kind, cost in _KINDS.items()}
    axes.plot(days, [each.day_memory for each in plans["bulk"]], label="results for a day")
    axes.plot(days, [each.hour_memory for each in plans["bulk"]], label="results for an hour")
    axes.plot(days, [each.log_memory for each in plans["streamed"]], label="event logs, all jobs streamed")
    axes.axhline(64, color="black", linestyle=":", label="one server of 64 GiB")
    axes.set(ylabel="GiB of Redis", title="Redis memory")


if __name__ == "__main__":
    main()
