"""The broker on a real Redis against a model of it, in every order of events that hypothesis can think of."""

import asyncio
from collections import Counter
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from schemas import names
from tests.contract.queues import FAILURE, OnRedis, ending, new_job
from worker.jobs.broker import Broker, Delivery, Held, Isolation
from worker.jobs.outcome import Cancelled, Completed, Crashed, Dead, Expired, Failed, Outcome, Released, Retry

LANES = names.DEFAULT_LANES
SMALL_BATCH = 8
ENDS = {Completed: "completed", Failed: "failed", Dead: "failed", Cancelled: "cancelled", Expired: "expired"}
OUTCOMES: list[Outcome] = [
    Completed(),
    Failed(FAILURE),
    Dead(FAILURE),
    Retry(FAILURE, 0.0),
    Retry(FAILURE, 600.0),
    Released(),
    Crashed(),
]

_T = TypeVar("_T")


@dataclass(eq=False)
class ModelJob:
    """What a job must be; `apart` is where it waits, or waited before it was claimed."""

    home: str
    expired: bool = False
    state: str = "queued"
    attempt: int = 0
    crashes: int = 0
    cancelled: bool = False
    owner: str | None = None
    apart: Isolation = Isolation.NONE
    endings: int = 0

    def requeue(self) -> None:
        waits = {1: Isolation.SMALL, 2: Isolation.ALONE}
        self.state, self.owner = "queued", None
        self.apart = Isolation.NONE if self.cancelled else waits.get(self.crashes, Isolation.NONE)

    def crash(self) -> None:
        self.crashes += 1
        self.requeue()

    def settle(self, outcome: Outcome) -> None:
        match outcome:
            case Crashed():
                self.crash()
            case Released():
                self.attempt -= 1
                self.requeue()
            case Retry():
                self.state, self.owner = "delayed", None
            case _:
                self.state, self.owner = ENDS[type(outcome)], None
                self.endings += 1

    @property
    def verdict(self) -> type[Outcome] | None:
        if self.cancelled:
            return Cancelled
        return Expired if self.expired else Dead if self.crashes >= 3 else None


@dataclass(eq=False)
class Worker:
    """A broker, what it claimed and has not settled, and whether its lease runs."""

    name: str
    broker: Broker
    held: dict[str, list[Delivery]] = field(default_factory=dict)
    lives: bool = True

    @property
    def deliveries(self) -> list[Delivery]:
        return [delivery for held in self.held.values() for delivery in held]


class BrokerMachine(RuleBasedStateMachine):
    """Jobs, two workers with more to follow those that die, and an operator; all they do, in any order."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.queue = OnRedis(url)
        self.jobs: dict[str, ModelJob] = {}
        self.workers: list[Worker] = []
        self.paused: set[str] = set()
        self.due: set[str] = set()
        self.duplicates = False
        self.retried = self.letters = 0

    def do(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        return self.runner.run(coroutine)

    @initialize()
    def start(self) -> None:
        self.do(self.queue.clear())
        self.transport = self.queue.transport()
        self.hire()
        self.hire()

    def hire(self) -> Worker:
        worker = Worker(name := f"worker-{len(self.workers)}", self.queue.broker(name))
        self.do(worker.broker.open())
        self.workers.append(worker)
        return worker

    @rule(lane=st.sampled_from(LANES), tenant=st.sampled_from([None, None, "a", "b"]), count=st.integers(1, 12))
    def submit(self, lane: str, tenant: str | None, count: int) -> None:
        for job_id in self.do(self.transport.submit([new_job(lane=lane, tenant=tenant) for _ in range(count)])):
            self.jobs[job_id] = ModelJob(lane)

    @rule(lane=st.sampled_from(LANES), expired=st.booleans())
    def submit_raw(self, lane: str, expired: bool) -> None:
        deadline = ', "deadline": 1' if expired else ""
        job_id = f"raw-{len(self.jobs)}"
        self.do(self.queue.put(lane, {"j": f'{{"id": "{job_id}"{deadline}}}'}))
        self.jobs[job_id] = ModelJob(lane, expired)

    @precondition(lambda self: any(len(known) > 32 for known in self.jobs))
    @rule(data=st.data(), lane=st.sampled_from(LANES))
    def submit_twice(self, data: st.DataObject, lane: str) -> None:
        job_id = data.draw(st.sampled_from([known for known in self.jobs if len(known) > 32]))
        self.do(self.queue.put(lane, {"j": f'{{"id": "{job_id}"}}'}))
        self.duplicates = True

    @rule(data=st.data(), permits=st.sampled_from([1, 3, 9, 64]))
    def take(self, data: st.DataObject, permits: int) -> None:
        worker = data.draw(st.sampled_from([one for one in self.workers if one.lives]))
        expected = self.claimable(worker, permits)
        deliveries = self.do(worker.broker.take(permits))
        self.paused_took_nothing(deliveries)
        self.due -= set(self.due)
        assert len(deliveries) <= permits
        assert expected is None or len(deliveries) == expected
        for delivery in deliveries:
            self.accept(worker, delivery)

    def claimable(self, worker: Worker, permits: int) -> int | None:
        """Say how many jobs a take must bring, where the model knows."""
        queued = [job for job in self.jobs.values() if job.state == "queued"]
        apart = any(job.apart is not Isolation.NONE for job in queued)
        if (
            apart
            or self.duplicates
            or self.due
            or any(one.isolation is not Isolation.NONE for one in worker.deliveries)
        ):
            return None
        return min(permits, sum(job.home not in self.paused for job in queued))

    def paused_took_nothing(self, deliveries: list[Delivery]) -> None:
        for delivery in deliveries:
            assert delivery.isolation is not Isolation.NONE or self.jobs[delivery.job_id].home not in self.paused

    def accept(self, worker: Worker, delivery: Delivery) -> None:
        job = self.jobs[delivery.job_id]
        if job.state == "delayed":
            job.requeue()
        assert job.state == "queued"
        job.state, job.owner, job.attempt = "running", worker.name, job.attempt + 1
        worker.held.setdefault(delivery.job_id, []).append(delivery)
        assert (delivery.attempt, delivery.crashes, delivery.isolation) == (job.attempt, job.crashes, job.apart)
        assert (type(delivery.verdict) if delivery.verdict else None) is job.verdict
        assert delivery.verdict or job.crashes == 0 or job.apart is not Isolation.NONE

    @precondition(lambda self: any(worker.held for worker in self.workers))
    @rule(data=st.data(), outcome=st.sampled_from(OUTCOMES), share=st.sampled_from([1, 4, 100]))
    def settle(self, data: st.DataObject, outcome: Outcome, share: int) -> None:
        worker = data.draw(st.sampled_from([one for one in self.workers if one.held]))
        self.settle_all(worker, worker.deliveries[:share], outcome)

    def settle_all(self, worker: Worker, deliveries: list[Delivery], outcome: Outcome) -> None:
        ends = [ending(one, one.verdict or outcome) for one in deliveries]
        settled = self.do(worker.broker.settle(ends))
        for end, ours in zip(ends, settled, strict=True):
            delivery, job = end.delivery, self.jobs[end.delivery.job_id]
            assert ours is self.owns(worker, delivery)
            worker.held[delivery.job_id].remove(delivery)
            if not worker.held[delivery.job_id]:
                del worker.held[delivery.job_id]
            if ours:
                job.settle(end.outcome)
                self.retried += isinstance(end.outcome, Retry)
                self.letters += isinstance(end.outcome, Dead)
                if job.state == "delayed" and (job.cancelled or end.outcome == Retry(FAILURE, 0.0)):
                    self.due.add(delivery.job_id)

    def owns(self, worker: Worker, delivery: Delivery) -> bool:
        job = self.jobs[delivery.job_id]
        latest = worker.held[delivery.job_id][-1]
        return job.owner == worker.name and delivery is latest and job.attempt == delivery.attempt

    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        worker = data.draw(st.sampled_from([one for one in self.workers if one.lives]))
        self.do(self.queue.kill(worker.name))
        worker.lives = False
        self.hire()

    @rule(data=st.data())
    def reclaim(self, data: st.DataObject) -> None:
        self.reclaim_by(data.draw(st.sampled_from([one for one in self.workers if one.lives])))

    def reclaim_by(self, worker: Worker) -> None:
        living = {one.name for one in self.workers if one.lives}
        lost = [job for job in self.jobs.values() if job.state == "running" and job.owner not in living]
        assert self.do(worker.broker.reclaim()) == len(lost)
        for job in lost:
            job.crash()

    @rule(data=st.data())
    def extend(self, data: st.DataObject) -> None:
        """A worker that was frozen comes back with this, and learns what it has lost."""
        worker = data.draw(st.sampled_from(self.workers))
        held = self.do(worker.broker.extend())
        worker.lives = True
        ours = [one for one in worker.deliveries if self.owns(worker, one)]
        lost = {one.entry_id for one in worker.deliveries} - {one.entry_id for one in ours}
        cancelled = {one.entry_id for one in ours if self.jobs[one.job_id].cancelled}
        assert isinstance(held, Held)
        assert {one.entry_id for one in held.lost} == lost
        assert {one.entry_id for one in held.cancelled} == cancelled

    @precondition(lambda self: self.jobs)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        job_id = data.draw(st.sampled_from(list(self.jobs)))
        job = self.jobs[job_id]
        known = self.do(self.transport.cancel(job_id))
        if known is None:
            # raw, and claimed by nobody yet: the flag waits for it
            assert (job.state, job.attempt) == ("queued", 0)
        else:
            assert known == job.state
        if job.endings == 0:
            job.cancelled = True
            if job.state == "delayed":
                self.due.add(job_id)

    @rule(lane=st.sampled_from(LANES))
    def pause(self, lane: str) -> None:
        self.do(self.queue.pause(lane))
        self.paused.add(lane)

    @rule()
    def resume(self) -> None:
        for lane in self.paused:
            self.do(self.queue.resume(lane))
        self.paused.clear()

    @rule()
    def time_passes(self) -> None:
        for job_id in self.do(self.queue.call("ZRANGE", names.delayed(), 0, -1)):
            self.do(self.queue.call("ZADD", names.delayed(), "XX", 0, job_id))
            self.due.add(job_id)

    @invariant()
    def nothing_runs_beside_a_quarantined_job_but_what_may(self) -> None:
        for worker in self.workers:
            kinds = Counter(one.isolation for one in worker.deliveries)
            assert len(kinds) <= 1
            assert kinds[Isolation.SMALL] <= SMALL_BATCH
            assert kinds[Isolation.ALONE] <= 1

    @invariant()
    def no_job_ends_twice(self) -> None:
        assert all(job.endings <= 1 for job in self.jobs.values())

    def teardown(self) -> None:
        try:
            if self.workers:
                self.drain()
                self.check_the_end()
        finally:
            self.do(self.queue.close())
            self.runner.close()

    def drain(self) -> None:
        """Let every worker die, and one new one finish all there is."""
        self.resume()
        self.time_passes()
        last = self.hire()
        for worker in self.workers[:-1]:
            self.do(self.queue.kill(worker.name))
            worker.lives = False
        self.reclaim_by(last)
        for _ in range(len(self.jobs) + 8):
            for delivery in self.do(last.broker.take(64)):
                self.accept(last, delivery)
            if not last.held and not any(job.endings == 0 for job in self.jobs.values()):
                return
            self.settle_all(last, last.deliveries, Completed())
            self.time_passes()

    def check_the_end(self) -> None:
        states = {job_id: self.do(self.transport.state(job_id)) for job_id in self.jobs}
        assert states == {job_id: job.state for job_id, job in self.jobs.items()}
        assert all(job.endings == 1 for job in self.jobs.values()), "no job is lost"
        for job_id, job in self.jobs.items():
            assert self.do(self.queue.read(job_id, "attempt")) == str(job.attempt)
            assert int(self.do(self.queue.read(job_id, "crashes")) or 0) == job.crashes
            assert self.do(self.transport.result(job_id)) == b"result"
            told = self.do(self.transport.log(job_id))
            assert told.count(b"last of " + job_id.encode()) == 1
        self.check_that_nothing_is_left()

    def check_that_nothing_is_left(self) -> None:
        for stream in self.do(self.queue.call("KEYS", f"{names.stem(0)}jobs:*")):
            assert self.do(self.queue.call("XLEN", stream)) == 0
            assert self.do(self.queue.call("XPENDING", stream, names.GROUP))["pending"] == 0
        assert self.do(self.queue.call("ZCARD", names.delayed())) == 0
        assert len(self.do(self.queue.letters())) == self.letters
        totals = {name: int(count) for name, count in self.do(self.queue.call("HGETALL", names.totals())).items()}
        states = Counter(job.state for job in self.jobs.values())
        told = {
            "dead": self.letters,
            "retried": self.retried,
            "reclaimed": sum(job.crashes for job in self.jobs.values()),
        }
        assert totals == {name: count for name, count in {**states, **told}.items() if count}


def test_the_broker_does_what_the_model_does(redis_url: str) -> None:
    checks = settings(
        max_examples=500,
        stateful_step_count=20,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(lambda: BrokerMachine(redis_url), settings=checks)
