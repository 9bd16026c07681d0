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
