"""Jobs with their times of arrival and of service, drawn at random from a seed."""

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

__all__ = ["Arrival", "arrivals", "daily", "gamma_times", "steady"]

_DAY_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True)
class Arrival:
    """One job: the second at which it is submitted, and the seconds that its answer takes."""

    at: float
    service: float


def arrivals(
    rate: Callable[[float], float], most: float, seconds: float, service: Callable[[], float], seed: int = 0
) -> Iterator[Arrival]:
    """Yield the jobs of `seconds`, as they come from many independent producers.

    `rate` is the number of jobs a second at a time, never above `most`. Lewis and Shedler's thinning (1979): candidates
    come at the highest rate, and each stays with the probability of the rate at its time.
    """
    chance, at = random.Random(seed), 0.0
    while (at := at + chance.expovariate(most)) < seconds:
        if chance.random() * most <= rate(at):
            yield Arrival(at, service())


def steady(jobs_per_second: float) -> Callable[[float], float]:
    """Return a rate that stays the same."""
    return lambda at: jobs_per_second


def daily(jobs_per_day: float, peak: float, day_seconds: float = _DAY_SECONDS) -> Callable[[float], float]:
    """Return the rate of a day whose busiest moment has `peak` times the mean, from 1 on; it begins at its quietest.

    Higher peaks are narrower: the rate is a power of a sine, and the rest of it is level. A day may be shortened to
    `day_seconds`; the rates stay those of the whole day.
    """
    mean = jobs_per_day / _DAY_SECONDS
    power = max(1.0, peak**2 / 2)  # this makes the peak at least `peak` times the mean
    shape = [((1 - math.cos(2 * math.pi * (n + 0.5) / 1000)) / 2) ** power for n in range(1000)]
    level = sum(shape) / len(shape)
    depth = (peak - 1) / (1 / level - 1)

    def rate(at: float) -> float:
        wave = ((1 - math.cos(2 * math.pi * at / day_seconds)) / 2) ** power
        return mean * (1 - depth + depth * wave / level)

    return rate


def gamma_times(seconds: float, shape: float, seed: int = 0) -> Callable[[], float]:
    """Return a function that draws times of service with this mean; `shape` 1 is exponential, larger is narrower."""
    chance = random.Random(seed)
    return lambda: chance.gammavariate(shape, seconds / shape)
