"""The simulation: jobs go through a partition of Redis to a free place at a worker, and back through Redis.

A partition is a single server, because Redis runs one command after the other. A worker holds a job from its claim to
its settlement. Jobs are claimed in their order of arrival by whichever worker has room, so all workers together act as
one server with many places. A worker that dies takes its places along; its jobs are claimed again once its lease has
run out and another worker has noticed, before all that came later.
"""

import heapq
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from benchmarks.simulate.arrivals import Arrival

__all__ = ["Fleet", "Kill", "Outcome", "quantile", "simulate"]


class Kill(NamedTuple):
    """The death of a worker at a time in seconds; its successor is ready `restart` seconds later."""

    at: float
    restart: float


@dataclass(frozen=True, slots=True)
class Fleet:
    """The workers of one partition.

    One of `workers` holds at most `places` jobs. It holds each for the time of its answer and `overhead` more seconds,
    and claims it `pickup` seconds after it arrived or a place became free. `submit_us` and `settle_us` are Redis's CPU
    time for a job before and after its claim.
    """

    workers: int
    places: int
    overhead: float = 0.0
    pickup: float = 0.0
    submit_us: float = 0.0
    settle_us: float = 0.0
    lease: float = 15.0
    kills: Sequence[Kill] = ()


@dataclass(slots=True)
class Outcome:
    """The jobs that ended: their `ages` at the claim in seconds, and the shares of time that servers were busy."""

    ages: list[float] = field(default_factory=list)
    jobs: int = 0
    reruns: int = 0
    last: float = 0.0
    busy: float = 0.0
    redis_busy: float = 0.0

    def jobs_per_second(self, first: float = 0.0) -> float:
        """Return the jobs that ended a second, from `first` to the last end."""
        return self.jobs / (self.last - first) if self.last > first else 0.0


@dataclass(slots=True)
class _Job:
    arrival: Arrival
    queued: float
    run: int = 0


class _Server:
    """Redis: one command after the other."""

    def __init__(self) -> None:
        self.free = self.busy = 0.0

    def do(self, at: float, microseconds: float) -> float:
        """Return when work that comes at a time is done."""
        self.busy += microseconds / 1e6
        self.free = max(self.free, at) + microseconds / 1e6
        return self.free


def simulate(jobs: Iterable[Arrival], fleet: Fleet) -> Outcome:
    """Run the jobs of one partition, in their order of arrival, to the last end."""
    return _Simulation(fleet).run(jobs)


class _Simulation:
    def __init__(self, fleet: Fleet) -> None:
        self._fleet, self._redis, self._outcome = fleet, _Server(), Outcome()
        self._waiting: deque[_Job] = deque()
        self._free = [fleet.places] * fleet.workers
        self._held: list[dict[int, _Job]] = [{} for _ in range(fleet.workers)]
        self._lives = [0] * fleet.workers
        self._events: list[tuple[float, int, str, tuple[int, ...], _Job | None]] = []
        self._count = self._victim = 0

    def run(self, jobs: Iterable[Arrival]) -> Outcome:
        for kill in self._fleet.kills:
            self._at(kill.at, "kill", (round(1e6 * kill.restart),))
        for arrival in jobs:
            self._go_on(arrival.at)
            queued = self._redis.do(arrival.at, self._fleet.submit_us)
            self._at(queued, "queued", (), _Job(arrival, queued))
        self._go_on(float("inf"))
        self._outcome.redis_busy = self._redis.busy
        return self._outcome

    def _at(self, at: float, what: str, of: tuple[int, ...] = (), job: _Job | None = None) -> None:
        self._count += 1
        heapq.heappush(self._events, (at, self._count, what, of, job))

    def _go_on(self, until: float) -> None:
        while self._events and self._events[0][0] <= until:
            at, _, what, of, job = heapq.heappop(self._events)
            if what == "queued":
                assert job is not None
                self._waiting.append(job)
            elif what == "ended":
                assert job is not None
                self._end(at, job, *of)
            elif what == "kill":
                self._kill(at, *of)
            elif what == "back":
                [worker] = of
                self._free[worker] = self._fleet.places
            else:
                assert job is not None
                self._waiting.appendleft(job)
            self._claim(at)

    def _claim(self, now: float) -> None:
        while self._waiting:
            worker = max(range(len(self._free)), key=self._free.__getitem__)
            if self._free[worker] <= 0:
                return
            job = self._waiting.popleft()
            job.run += 1
            self._free[worker] -= 1
            claimed = now + self._fleet.pickup
            if job.run == 1:
                self._outcome.ages.append(claimed - job.queued)
            held = job.arrival.service + self._fleet.overhead
            self._count += 1
            self._held[worker][self._count] = job
            self._outcome.busy += held
            self._at(claimed + held, "ended", (worker, self._lives[worker], self._count), job)

    def _end(self, now: float, job: _Job, worker: int, life: int, place: int) -> None:
        if self._lives[worker] != life:
            return
        del self._held[worker][place]
        self._free[worker] += 1
        self._outcome.jobs += 1
        self._outcome.last = max(self._outcome.last, self._redis.do(now, self._fleet.settle_us))

    def _kill(self, now: float, restart_us: int) -> None:
        worker = self._victim = (self._victim + 1) % len(self._free)
        # the lease runs out, and a worker looks at most a third of a lease later
        found = now + self._fleet.lease * 7 / 6
        for job in reversed(self._held[worker].values()):
            self._outcome.reruns += 1
            self._at(found, "given back", (), job)
        self._held[worker].clear()
        self._lives[worker] += 1
        self._free[worker] = 0
        self._at(now + restart_us / 1e6, "back", (worker,))


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value that this share of the values does not exceed; 0 if there are none."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else 0.0
