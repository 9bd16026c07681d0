from itertools import accumulate

import pytest

from benchmarks.engine.engine_run import Record
from benchmarks.figures import Quantiles, summarise


def test_quantiles_are_ranks_in_milliseconds() -> None:
    assert Quantiles.of([number / 1e3 for number in range(101)]) == Quantiles(50.0, 95.0, 99.0)
    assert Quantiles.of([]) is None


def test_requests_are_summed_up() -> None:
    words = Record(
        arrived=10.0, submitted=10.2, ended=13.0, ttft=1.0, tokens=3, cached_tokens=7, output_times=[11.0, 12.0, 13.0]
    )
    boxes = Record(arrived=11.0, submitted=11.1, ended=14.0, ttft=2.0, tokens=6, output_times=[13.5, 14.0])
    found = summarise([words, boxes], 2, began=10.0)
    assert (found.requests, found.seconds, found.requests_per_second) == (2, 4.0, 0.5)
    assert (found.tokens_per_second, found.cached_requests) == (2.25, 1)
    assert found.latency == Quantiles(3000.0, 3000.0, 3000.0)
    assert found.ttft is not None
    assert found.ttft.p95 == pytest.approx(2000.0)
    # the boxes came without their tokens' times
    assert found.inter_token == Quantiles(1000.0, 1000.0, 1000.0)


def in_groups(*sizes: int) -> list[Record]:
    """Requests in a closed loop: each group ends together, a second for each of its requests after the one before."""
    ends = [float(end) for size, end in zip(sizes, accumulate(sizes), strict=True) for _ in range(size)]
    return [Record(arrived=end - 8.0, submitted=end - 8.0, ended=end, tokens=2) for end in ends]


@pytest.mark.parametrize("first", [1, 3, 4, 5])
def test_the_rate_of_a_closed_loop_does_not_depend_on_where_groups_of_requests_are_cut(first: int) -> None:
    records = in_groups(3, 4, 1, 3, 4, 1, 3, 4, 1, 3, 4, 1)
    found = summarise(records[first:], 8, began=records[first - 1].ended)
    assert found.requests_per_second == pytest.approx(1.0)
    assert found.tokens_per_second == pytest.approx(2.0)
