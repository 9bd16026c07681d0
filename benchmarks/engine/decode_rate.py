"""Measures tokens a second while every request in flight decodes, and none prefills or has ended.

It has no command of its own: `python -m benchmarks.engine.run decode` measures it for a Moondream, and
`python -m benchmarks.families.run` for the other families.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from statistics import fmean, median
from typing import Protocol, TypeVar

from benchmarks.engine.engine_run import Record
from benchmarks.figures import Quantiles

__all__ = ["DecodeRate", "Together", "decode_lines", "decode_rate", "rounds_of", "steady"]

_LEAST_ROUNDS, _MOST_ROUNDS = 3, 15  # a round of few requests is short, and a busy host delays some of its steps

_Ask = TypeVar("_Ask")
_Asked = TypeVar("_Asked", contravariant=True)


class Together(Protocol[_Asked]):
    """Runs requests that begin at once."""

    def together(self, asks: Sequence[_Asked]) -> list[Record]: ...


@dataclass(frozen=True, slots=True)
class DecodeRate:
    """Steady decode steps at one batch size; `mean_context` in positions, `step` the times between steps."""

    batch: int
    steps: int
    mean_context: float
    seconds: float
    tokens_per_second: float
    step: Quantiles | None


def decode_rate(running: Together[_Ask], asks: Iterator[_Ask], batch: int) -> DecodeRate:
    """Return the median of some rounds, each with new requests."""
    rounds = [steady(running.together(list(islice(asks, batch)))) for _ in range(rounds_of(batch))]
    middle = median(found.tokens_per_second for found in rounds)
    return min(rounds, key=lambda found: abs(found.tokens_per_second - middle))


def rounds_of(batch: int) -> int:
    """Return how many rounds of a batch are measured."""
    return max(_LEAST_ROUNDS, _MOST_ROUNDS // batch)


def steady(records: Sequence[Record]) -> DecodeRate:
    """Return the rate from the last request's first token to the first request's end.

    Every step gives each request a token, even if its text, such as part of a character, waits for the next one.
    """
    began, ended = max(record.output_times[0] for record in records), min(record.ended for record in records)
    times = [[stamp for stamp in record.output_times if began <= stamp <= ended] for record in records]
    stamps = sorted({stamp for own in times for stamp in own})
    if len(stamps) < 2:
        raise SystemExit(f"{len(records)} requests never decoded together: is max_batch smaller?")
    before = [sum(stamp < began for stamp in record.output_times) for record in records]
    contexts = [
        record.input_tokens + first + len(own) / 2 for record, first, own in zip(records, before, times, strict=True)
    ]
    return DecodeRate(
        batch=len(records),
        steps=len(stamps) - 1,
        mean_context=fmean(contexts),
        seconds=stamps[-1] - stamps[0],
        tokens_per_second=len(records) * (len(stamps) - 1) / (stamps[-1] - stamps[0]),
        step=Quantiles.of([later - earlier for earlier, later in pairwise(stamps)]),
    )


def decode_lines(found: Sequence[DecodeRate]) -> list[str]:
    """Return a table."""
    lines = [f"{'batch':>9}{'steps':>9}{'context':>9}{'tok/s':>10}{'step p50/95/99 ms':>24}"]
    for rate in found:
        step = "-" if rate.step is None else f"{rate.step.p50:.3g}/{rate.step.p95:.3g}/{rate.step.p99:.3g}"
        lines.append(
            f"{rate.batch:>9}{rate.steps:>9}{rate.mean_context:>9.0f}{rate.tokens_per_second:>10.1f}{step:>24}"
        )
    return lines
