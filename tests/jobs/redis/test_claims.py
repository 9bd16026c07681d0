from dataclasses import replace

import pytest

from stoop_worker.jobs.broker import Delivery, Isolation
from stoop_worker.jobs.redis.claims import ClaimPlan, Claims, Part
from tests.support.recording_broker import delivery

PARTITION = Part(0)


def apart(job_id: str, isolation: Isolation = Isolation.SMALL) -> Delivery:
    return replace(delivery(job_id), isolation=isolation)


def begin(claims: Claims, *deliveries: Delivery) -> None:
    plan = claims.plan(PARTITION, 64)
    assert plan is not None
    claims.accept(deliveries, plan)


def end(claims: Claims, *deliveries: Delivery) -> None:
    claims.drop([one.key for one in deliveries])


def test_an_idle_worker_may_take_from_the_quarantine_first() -> None:
    assert Claims(8).plan(PARTITION, 64) == ClaimPlan(64, "idle", quarantine_first=True, part=PARTITION)


def test_a_busy_worker_plans_a_busy_claim() -> None:
    claims = Claims(8)
    begin(claims, delivery("a"))
    assert claims.plan(PARTITION, 63) == ClaimPlan(63, "busy", quarantine_first=True, part=PARTITION)
    assert not claims.blocked


@pytest.mark.parametrize("permits", [0, -1])
def test_without_permits_there_is_no_plan(permits: int) -> None:
    assert Claims(8).plan(PARTITION, permits) is None


def test_a_small_batch_is_filled_up_but_no_further() -> None:
    claims = Claims(4)
    begin(claims, apart("a"), apart("b"))
    assert claims.plan(PARTITION, 64) == ClaimPlan(2, "small", quarantine_first=True, part=PARTITION)
    assert claims.plan(PARTITION, 1) == ClaimPlan(1, "small", quarantine_first=True, part=PARTITION)
    begin(claims, apart("c"), apart("d"))
    assert claims.plan(PARTITION, 64) is None
    assert claims.blocked


def test_nothing_is_claimed_beside_a_job_alone() -> None:
    claims = Claims(8)
    begin(claims, apart("a", Isolation.ALONE))
    assert claims.plan(PARTITION, 64) is None
    end(claims, apart("a", Isolation.ALONE))
    assert claims.plan(PARTITION, 64) == ClaimPlan(64, "idle", quarantine_first=True, part=PARTITION)


def test_after_four_jobs_alone_the_lanes_come_first_once() -> None:
    claims = Claims(8)
    for name in "abcd":
        assert claims.plan(PARTITION, 64) == ClaimPlan(64, "idle", quarantine_first=True, part=PARTITION)
        begin(claims, apart(name, Isolation.ALONE))
        end(claims, apart(name, Isolation.ALONE))
    assert claims.plan(PARTITION, 64) == ClaimPlan(64, "idle", quarantine_first=False, part=PARTITION)
    begin(claims, delivery("fresh"))
    end(claims, delivery("fresh"))
    assert claims.plan(PARTITION, 64) == ClaimPlan(64, "idle", quarantine_first=True, part=PARTITION)


def test_a_turn_ends_after_four_small_batches() -> None:
    claims = Claims(2)
    begin(claims, apart("0"), apart("1"))
    for i in range(2, 8):
        end(claims, apart(str(i - 1)))
        begin(claims, apart(str(i)))
    end(claims, apart("7"))
    assert claims.plan(PARTITION, 64) is None, "one is still held, and the turn is over"
    end(claims, apart("0"))
    assert claims.plan(PARTITION, 64) == ClaimPlan(64, "idle", quarantine_first=False, part=PARTITION)


def test_a_claim_of_only_quarantined_jobs_begins_another_turn() -> None:
    claims = Claims(2)
    for i in range(4):
        begin(claims, apart(f"{i}a"), apart(f"{i}b"))
        end(claims, apart(f"{i}a"), apart(f"{i}b"))
    begin(claims, apart("more"))
    assert claims.plan(PARTITION, 64) == ClaimPlan(1, "small", quarantine_first=True, part=PARTITION)


def test_nothing_of_another_partition_runs_beside_a_quarantined_job() -> None:
    claims = Claims(8)
    begin(claims, apart("a"))
    assert claims.plan(Part(1), 64) is None


def test_a_quarantined_job_runs_beside_no_job_of_another_model() -> None:
    claims = Claims(8)
    begin(claims, replace(apart("a"), lane="qwen3:quarantine:small"))
    assert claims.plan(Part(0), 64) is None
    assert claims.plan(Part(0, "qwen3"), 64) == ClaimPlan(7, "small", quarantine_first=True, part=Part(0, "qwen3"))


def test_a_turn_ends_even_if_lanes_of_another_model_are_read_in_between() -> None:
    claims, named = Claims(8), Part(0, "qwen3")
    for i in range(4):
        plan = claims.plan(named, 64)
        assert plan is not None and plan.quarantine_first
        suspect = replace(apart(f"{i}", Isolation.ALONE), lane="qwen3:quarantine:alone")
        claims.accept([suspect], plan)
        end(claims, suspect)
        begin(claims)
    assert claims.plan(named, 64) == ClaimPlan(64, "idle", quarantine_first=False, part=named)


def test_a_worker_that_waits_for_a_quarantine_polls_only_its_partition() -> None:
    claims = Claims(8)
    begin(claims, delivery("a"))
    claims.hold_back(Part(1))
    plans = claims.plan(Part(0), 64), claims.plan(Part(1), 64)
    assert plans == (None, ClaimPlan(64, "busy", quarantine_first=True, part=Part(1)))
    assert claims.blocked
    claims.hold_back(None)
    assert claims.plan(Part(0), 64) is not None


def test_a_held_delivery_is_not_accepted_again() -> None:
    claims = Claims(8)
    plan = claims.plan(PARTITION, 64)
    assert plan is not None
    assert claims.accept([delivery("a")], plan) == [delivery("a")]
    assert claims.accept([delivery("a"), delivery("b")], plan) == [delivery("b")]
    assert claims.accept([delivery("a", attempt=2)], plan) == [delivery("a", attempt=2)]
