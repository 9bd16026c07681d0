import pytest

from benchmarks.engine.decode_rate import steady
from benchmarks.engine.engine_run import Record


def record(*times: float) -> Record:
    return Record(arrived=0.0, ended=times[-1], tokens=len(times), input_tokens=100, output_times=list(times))


def test_only_the_time_in_which_all_decode_counts() -> None:
    # the second joins at 3 and the first ends at 5: two steps of two tokens in two seconds
    found = steady([record(1.0, 2.0, 3.0, 4.0, 5.0), record(3.0, 4.0, 5.0, 6.0)])
    assert (found.batch, found.steps, found.seconds) == (2, 2, 2.0)
    assert found.tokens_per_second == 2.0
    assert found.mean_context == pytest.approx(((100 + 2 + 1.5) + (100 + 1.5)) / 2)


def test_requests_that_never_decode_together_have_no_rate() -> None:
    with pytest.raises(SystemExit, match="max_batch"):
        steady([record(1.0, 2.0), record(3.0, 4.0)])


def test_a_token_whose_text_waits_for_the_next_one_counts() -> None:
    found = steady([record(1.0, 2.0, 3.0), record(1.0, 3.0)])
    assert found.tokens_per_second == 2.0
