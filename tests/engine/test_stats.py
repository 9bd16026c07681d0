"""The engine's counts of its steps."""

from stoop_worker.engine.stats import Totals
from stoop_worker.figures import Histogram


def test_a_histogram_counts_a_value_at_its_upper_edge() -> None:
    counted = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 9.0):
        counted = counted.with_value(value)
    assert counted.counts == (2, 1, 1)
    assert counted.sum == 12.0
    assert Histogram((1.0, 2.0)).counts == (0, 0, 0), "a histogram never changes"


def test_a_step_of_an_encoder_is_timed_as_a_prefill() -> None:
    totals = Totals()
    totals.add_texts(12, 3, 0.015)
    assert (totals.steps, totals.prefill_tokens) == (1, 12)
    assert totals.prefill_step_seconds.sum == 0.015
    assert sum(totals.prefill_step_seconds.counts) == 1
    assert totals.batch_sequences.sum == 3
