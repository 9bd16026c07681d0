import random
from itertools import islice

import pytest

from benchmarks.simulate.arrivals import Arrival, arrivals, daily, gamma_times, steady
from benchmarks.simulate.capacity import plan, simulate_share
from benchmarks.simulate.costs import BULK
from benchmarks.simulate.model import Fleet, Kill, quantile, simulate


def evenly(count: int, gap: float, service: float) -> list[Arrival]:
    return [Arrival(n * gap, service) for n in range(count)]


def test_an_idle_fleet_claims_at_once() -> None:
    outcome = simulate(evenly(100, gap=1.0, service=0.5), Fleet(workers=3, places=2, pickup=0.01))
    assert outcome.jobs == 100
    assert outcome.ages == pytest.approx([0.01] * 100)


def test_a_full_fleet_answers_as_many_as_it_has_places() -> None:
    outcome = simulate(evenly(1000, gap=0.01, service=0.4), Fleet(workers=3, places=4, overhead=0.1))
    assert outcome.jobs_per_second() == pytest.approx(12 / 0.5, rel=0.02)
    # the queue grows by what comes less what goes, and the last job waits for all before it
    assert outcome.ages[-1] == pytest.approx(1000 / 24 - 10, rel=0.05)


def test_the_wait_is_that_of_queueing_theory() -> None:
    """A single server with random arrivals and exponential times (M/M/1) makes jobs wait u / (m - l) on average."""
    jobs = islice(arrivals(steady(5.0), 5.0, 1e9, gamma_times(0.1, 1.0)), 20_000)
    ages = simulate(jobs, Fleet(workers=1, places=1)).ages
    assert sum(ages) / len(ages) == pytest.approx(0.5 / (10 - 5), rel=0.1)


def test_a_busy_redis_holds_jobs_up() -> None:
    outcome = simulate(evenly(1000, gap=0.001, service=0.0), Fleet(1, 1000, submit_us=1500, settle_us=500))
    assert outcome.redis_busy == pytest.approx(2.0)
    assert outcome.last == pytest.approx(2.0)


def test_a_killed_worker_loses_no_job() -> None:
    kills = [Kill(at=5.0, restart=3.0), Kill(at=9.0, restart=3.0)]
    outcome = simulate(evenly(400, gap=0.05, service=1.0), Fleet(3, 16, lease=2.0, kills=kills))
    assert outcome.jobs == 400
    assert len(outcome.ages) == 400
    assert outcome.reruns > 0


def test_a_day_has_its_mean_and_its_peak() -> None:
    for peak in (1.0, 1.5, 3.0, 6.0):
        rate = daily(86_400 * 10.0, peak)
        rates = [rate(n * 86.4) for n in range(1000)]
        assert sum(rates) / 1000 == pytest.approx(10.0, rel=0.01)
        assert max(rates) == pytest.approx(10.0 * peak, rel=0.01)
        assert min(rates) >= 0


def test_arrivals_have_their_rate() -> None:
    found = list(arrivals(daily(86_400 * 50.0, 3.0, day_seconds=200.0), 150.0, 200.0, lambda: 0.0, seed=5))
    assert len(found) == pytest.approx(10_000, rel=0.05)
    assert [each.at for each in found] == sorted(each.at for each in found)


def test_a_plan_is_enough_for_its_day() -> None:
    found = plan(1e9, 3.0, BULK, 64.4)
    assert found.peak_rate == pytest.approx(34_722, rel=0.001)
    assert found.gpus == 635
    outcome = simulate_share(found, 3.0, BULK, 64.4, day=10.0)
    assert quantile(outcome.ages, 0.99) < 0.1
    assert outcome.redis_busy < 10.0


def test_quantiles() -> None:
    values = list(range(100))
    random.Random(1).shuffle(values)
    assert (quantile(values, 0.5), quantile(values, 0.95), quantile(values, 1.0), quantile([], 0.5)) == (50, 95, 99, 0)
