"""The broker on a real Redis against a model of it, in every order of events that hypothesis can find."""

import asyncio
import itertools
from collections import Counter
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest
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

from stoop_schemas import names
from stoop_worker.jobs.broker import Broker, Delivery, Held, Isolation
from stoop_worker.jobs.outcome import Cancelled, Completed, Crashed, Dead, Expired, Failed, Outcome, Released, Retry
from tests.contract.queues import FAILURE, OnRedis, ending, new_job

LANES = names.DEFAULT_LANES
SMALL_BATCH = 16
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
PERMITS = st.sampled_from([1, 3, 9, 64])
PLANS = st.lists(st.sampled_from([*OUTCOMES, None, None, None, None, None]), min_size=1, max_size=4)

_T = TypeVar("_T")


@dataclass(eq=False)
class ModelJob:
    """The expected state of a job; `apart` is where it waits, or waited before it was claimed."""

    home: str
    expired: bool = False
    state: str = "queued"
    attempt: int = 0
    crashes: int = 0
    spared: bool = False
    cancelled: bool = False
    hastened: bool = False
    owner: str | None = None
    apart: Isolation = Isolation.NONE
    endings: int = 0

    @property
    def doubts(self) -> int:
        return self.crashes - self.spared

    def requeue(self) -> None:
        waits = {1: Isolation.SMALL, 2: Isolation.ALONE}
        self.state, self.owner = "queued", None
        self.hastened = self.cancelled
        self.apart = Isolation.NONE if self.cancelled else waits.get(self.doubts, Isolation.NONE)

    def crash(self) -> None:
        self.crashes += 1
        self.requeue()

    def lose_worker(self) -> None:
        """The first death of a whole worker does not count against it."""
        self.spared = True
        self.crash()

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
        return Expired if self.expired else Dead if self.doubts >= 3 else None


@dataclass(eq=False)
class Worker:
    """A broker, its unsettled claims, and whether its lease runs."""

    name: str
    broker: Broker
    held: dict[str, list[Delivery]] = field(default_factory=dict)
    lives: bool = True

    @property
    def deliveries(self) -> list[Delivery]:
        return [delivery for held in self.held.values() for delivery in held]


class BrokerMachine(RuleBasedStateMachine):
    """Jobs, three workers with more to follow those that die, and an operator; all they do, in any order."""

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
        for _ in range(3):
            self.hire()

    def a_living_worker(self) -> Worker:
        return next((worker for worker in self.workers if worker.lives), None) or self.hire()

    def hire(self) -> Worker:
        worker = Worker(name := f"worker-{len(self.workers)}", self.queue.broker(name))
        self.do(worker.broker.open())
        self.do(worker.broker.extend(record=b"{}"))
        self.workers.append(worker)
        return worker

    @rule(
        lane=st.sampled_from(LANES),
        tenant=st.sampled_from([None, None, "a", "b"]),
        count=st.sampled_from([1, 2, 3, 10]),
    )
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

    @precondition(lambda self: self.jobs)
    @rule(data=st.data(), permits=PERMITS, outcomes=PLANS)
    def work(self, data: st.DataObject, permits: int, outcomes: list[Outcome | None]) -> None:
        """Claim, and end some of the held jobs; a worker that lost its lease unawares can only try to end its own."""
        worker = data.draw(st.sampled_from(self.workers))
        if worker.lives:
            self.take_by(worker, permits)
        self.settle_some(worker, outcomes)

    @precondition(lambda self: self.jobs)
    @rule(data=st.data(), rounds=st.lists(st.tuples(PERMITS, PLANS), min_size=2, max_size=5))
    def work_on(self, data: st.DataObject, rounds: list[tuple[int, list[Outcome | None]]]) -> None:
        worker = data.draw(st.sampled_from([one for one in self.workers if one.lives]))
        for permits, outcomes in rounds:
            self.take_by(worker, permits)
            self.settle_some(worker, outcomes)

    @precondition(lambda self: self.jobs)
    @rule(data=st.data(), times=st.integers(1, 4))
    def crash_again_and_again(self, data: st.DataObject, times: int) -> None:
        worker = data.draw(st.sampled_from([one for one in self.workers if one.lives]))
        for _ in range(times):
            self.take_by(worker, 64)
            self.settle_some(worker, [Crashed()])

    def take_by(self, worker: Worker, permits: int) -> None:
        expected = self.claimable(worker, permits)
        deliveries = self.do(worker.broker.take(permits))
        self.promote_due()
        self.paused_took_nothing(deliveries)
        assert len(deliveries) <= permits
        assert expected is None or len(deliveries) == expected
        for delivery in deliveries:
            self.accept(worker, delivery)
        self.nothing_runs_beside_a_quarantined_job_but_what_may(worker)

    def nothing_runs_beside_a_quarantined_job_but_what_may(self, worker: Worker) -> None:
        kinds = Counter(one.isolation for one in worker.deliveries)
        assert len(kinds) <= 1
        assert kinds[Isolation.SMALL] <= SMALL_BATCH
        assert kinds[Isolation.ALONE] <= 1

    def promote_due(self) -> None:
        """Follow a take in the model: it puts due delayed jobs back, as many as it has permits."""
        if self.due:
            delayed = set(self.do(self.queue.call("ZRANGE", names.delayed(), 0, -1)))
            for job_id in self.due - delayed:
                self.jobs[job_id].requeue()
            self.due &= delayed

    def claimable(self, worker: Worker, permits: int) -> int | None:
        """Return the number of jobs that a take must bring, where the model knows it."""
        queued = [job for job in self.jobs.values() if job.state == "queued"]
        apart = any(job.apart is not Isolation.NONE for job in queued)
        if (
            apart
            or self.duplicates
            or self.due
            or any(one.isolation is not Isolation.NONE for one in worker.deliveries)
        ):
            return None
        return min(permits, sum(job.hastened or job.home not in self.paused for job in queued))

    def paused_took_nothing(self, deliveries: list[Delivery]) -> None:
        for delivery in deliveries:
            job = self.jobs[delivery.job_id]
            assert job.hastened or job.home not in self.paused or delivery.isolation is not Isolation.NONE

    def accept(self, worker: Worker, delivery: Delivery) -> None:
        job = self.jobs[delivery.job_id]
        assert job.state == "queued"
        job.hastened = False
        job.state, job.owner, job.attempt = "running", worker.name, job.attempt + 1
        worker.held.setdefault(delivery.job_id, []).append(delivery)
        assert (delivery.attempt, delivery.crashes, delivery.isolation) == (job.attempt, job.crashes, job.apart)
        assert (type(delivery.verdict) if delivery.verdict else None) is job.verdict
        assert delivery.verdict or job.doubts == 0 or job.apart is not Isolation.NONE

    def settle_some(self, worker: Worker, outcomes: list[Outcome | None]) -> None:
        """End each delivery with the outcome whose turn it is, or leave it (None)."""
        planned = zip(worker.deliveries, itertools.cycle(outcomes), strict=False)
        ends = [ending(one, one.verdict or outcome) for one, outcome in planned if outcome]
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

    @precondition(lambda self: self.jobs)
    @rule(data=st.data(), permits=st.tuples(PERMITS, PERMITS), outcomes=PLANS, noticed=st.booleans())
    def die(self, data: st.DataObject, permits: tuple[int, int], outcomes: list[Outcome | None], noticed: bool) -> None:
        """One worker dies with the jobs that it has just claimed; another, busy itself, takes them over."""
        doomed = data.draw(st.sampled_from([one for one in self.workers if one.lives]))
        self.take_by(doomed, permits[0])
        self.do(self.queue.kill(doomed.name))
        doomed.lives = False
        heir = self.a_living_worker()
        self.take_by(heir, permits[1])
        if noticed:
            self.reclaim_by(heir)
            self.take_by(heir, 9)
            self.settle_some(heir, outcomes)

    @precondition(lambda self: any(not worker.lives for worker in self.workers))
    @rule(data=st.data())
    def reclaim(self, data: st.DataObject) -> None:
        self.reclaim_by(data.draw(st.sampled_from([one for one in self.workers if one.lives])))

    def reclaim_by(self, worker: Worker) -> None:
        living = {one.name for one in self.workers if one.lives}
        lost = [job for job in self.jobs.values() if job.state == "running" and job.owner not in living]
        assert self.do(worker.broker.reclaim()) == len(lost)
        for job in lost:
            job.lose_worker()

    @precondition(lambda self: any(worker.held for worker in self.workers))
    @rule(data=st.data())
    def extend(self, data: st.DataObject) -> None:
        self.beat(data.draw(st.sampled_from([one for one in self.workers if one.held])))

    def beat(self, worker: Worker) -> None:
        """Renew a lease; a frozen worker returns with this call, and learns which jobs it lost."""
        held = self.do(worker.broker.extend())
        worker.lives = True
        ours = [one for one in worker.deliveries if self.owns(worker, one)]
        lost = {one.entry_id for one in worker.deliveries} - {one.entry_id for one in ours}
        cancelled = {one.entry_id for one in ours if self.jobs[one.job_id].cancelled}
        assert isinstance(held, Held)
        assert {one.entry_id for one in held.lost} == lost
        assert {one.entry_id for one in held.cancelled} == cancelled

    @precondition(lambda self: self.jobs)
    @rule(data=st.data(), state=st.sampled_from(["running", "delayed", "queued", "completed"]))
    def cancel(self, data: st.DataObject, state: str) -> None:
        jobs = [job_id for job_id, job in self.jobs.items() if job.state == state] or list(self.jobs)
        job_id = data.draw(st.sampled_from(jobs))
        job = self.jobs[job_id]
        known = self.do(self.transport.cancel(job_id))
        if known is None:
            # raw, and not claimed yet: the flag waits for it
            assert (job.state, job.attempt) == ("queued", 0)
        else:
            assert known == job.state
        if job.endings == 0:
            job.cancelled = True
            job.hastened = known == "queued" and job.apart is Isolation.NONE
            if job.state == "delayed":
                self.due.add(job_id)
        for worker in self.workers:
            if worker.lives and job_id in worker.held:
                self.beat(worker)

    @precondition(lambda self: self.jobs)
    @rule(lane=st.sampled_from(LANES))
    def pause_or_resume(self, lane: str) -> None:
        self.resume() if self.paused else self.pause(lane)

    def pause(self, lane: str) -> None:
        self.do(self.queue.pause(lane))
        self.paused.add(lane)

    def resume(self) -> None:
        for lane in self.paused:
            self.do(self.queue.resume(lane))
        self.paused.clear()

    @precondition(lambda self: any(job.state == "delayed" for job in self.jobs.values()))
    @rule()
    def time_passes(self) -> None:
        delayed = [job_id for job_id, job in self.jobs.items() if job.state == "delayed"]
        if delayed:
            scores = [part for job_id in delayed for part in (0, job_id)]
            self.do(self.queue.call("ZADD", names.delayed(), "XX", *scores))
            self.due.update(delayed)

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
        """Let all workers except one die, and let this one finish all jobs."""
        self.resume()
        self.time_passes()
        last = self.a_living_worker()
        for worker in self.workers:
            if worker is not last and worker.lives:
                self.do(self.queue.kill(worker.name))
                worker.lives = False
        self.reclaim_by(last)
        for _ in range(len(self.jobs) + 8):
            self.take_by(last, 64)
            if not last.held and all(job.endings for job in self.jobs.values()):
                return
            self.settle_some(last, [Completed()])
            self.time_passes()

    def check_the_end(self) -> None:
        """No job is lost, each has one result, and Redis holds nothing else."""
        assert {job.endings for job in self.jobs.values()} <= {1}
        fields = ("state", "attempt", "crashes")
        found = self.do(self.queue.call_all([("HMGET", names.job(job_id), *fields) for job_id in self.jobs]))
        expected = [[job.state, str(job.attempt), str(job.crashes or "") or None] for job in self.jobs.values()]
        assert found == expected
        results = self.do(self.queue.call_all([("GET", names.result(job_id)) for job_id in self.jobs]))
        assert set(results) <= {"result"}
        logs = self.do(self.queue.call_all([("XREVRANGE", names.log(job_id), "+", "-") for job_id in self.jobs]))
        for job_id, log in zip(self.jobs, logs, strict=True):
            lasts = [event["e"] for _, event in log if event["e"].startswith("last of")]
            assert lasts == [log[0][1]["e"]] == [f"last of {job_id}"]
        self.check_that_nothing_is_left()

    def check_that_nothing_is_left(self) -> None:
        streams = self.do(self.queue.call("KEYS", f"{names.stem(0)}jobs:*"))
        assert not any(self.do(self.queue.call_all([("XLEN", stream) for stream in streams])))
        groups = self.do(self.queue.call_all([("XINFO", "GROUPS", stream) for stream in streams]))
        assert not any(group[group.index("pending") + 1] for known in groups for group in known)
        assert self.do(self.queue.call("ZCARD", names.delayed())) == 0
        assert self.do(self.queue.call("XLEN", names.dead())) == self.letters
        totals = {name: int(count) for name, count in self.do(self.queue.call("HGETALL", names.totals())).items()}
        states = Counter(job.state for job in self.jobs.values())
        lanes = Counter(f"ended:{job.home.partition('/')[0]}" for job in self.jobs.values())
        crashes = sum(job.crashes for job in self.jobs.values())
        counted = {"dead": self.letters, "retried": self.retried, "reclaimed": crashes}
        assert totals == {name: count for name, count in {**states, **lanes, **counted}.items() if count}


@pytest.mark.timeout(400)
def test_the_broker_behaves_like_the_model(redis_url: str) -> None:
    checks = settings(
        max_examples=150,
        stateful_step_count=12,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(lambda: BrokerMachine(redis_url), settings=checks)
