import pytest

from benchmarks.queue.telemetry_cost import ratio


def test_a_ratio_is_of_turns_of_the_same_round() -> None:
    rates = [100.0, 50.0, 200.0, 80.0]  # other work slows whole rounds
    found = ratio([0.9 * rate for rate in rates], rates)
    assert found.ratio == pytest.approx(0.9)
    assert (found.low, found.high) == (pytest.approx(0.9), pytest.approx(0.9))


def test_the_interval_is_wide_if_the_turns_differ() -> None:
    found = ratio([1.0, 2.0, 1.0, 2.0, 1.0], [1.0] * 5)
    assert found.low == 1.0 < 2.0 == found.high
