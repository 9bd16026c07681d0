import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoop_schemas.failure import RETRYABLE, Failure, FailureCode
from stoop_worker.jobs.outcome import Dead, Failed, Retry
from stoop_worker.jobs.retry import FIRST_SECONDS, LONGEST_SECONDS, STORE_FIRST_SECONDS, after_failure

FAULT = Failure.of(FailureCode.ENGINE_FAULT, "the engine broke")
PASSING = Failure.of(FailureCode.STORAGE_UNAVAILABLE, "the store is away")


@pytest.mark.parametrize("code", [code for code in FailureCode if code not in RETRYABLE])
def test_a_permanent_failure_is_not_retried(code: FailureCode) -> None:
    failure = Failure.of(code, "no")
    assert after_failure(failure, attempt=1, most=3, chance=0.5) == Failed(failure)


@pytest.mark.parametrize("code", sorted(RETRYABLE))
def test_a_temporary_failure_is_retried(code: FailureCode) -> None:
    failure = Failure.of(code, "not now")
    store = code in (FailureCode.STORAGE_UNAVAILABLE, FailureCode.IMAGE_TIMEOUT, FailureCode.AUDIO_TIMEOUT)
    first = STORE_FIRST_SECONDS if store else FIRST_SECONDS
    assert after_failure(failure, attempt=1, most=2, chance=1.0) == Retry(failure, first)


def test_three_attempts_outlast_a_store_that_restarts() -> None:
    waits = [after_failure(PASSING, attempt=n, most=3, chance=0.0) for n in (1, 2)]
    assert sum(wait.delay for wait in waits if isinstance(wait, Retry)) >= 10


@pytest.mark.parametrize(("attempt", "most"), [(1, 1), (3, 3), (7, 3)])
def test_after_the_last_attempt_it_is_a_dead_letter_that_names_the_last_failure(attempt: int, most: int) -> None:
    outcome = after_failure(PASSING, attempt=attempt, most=most, chance=0.5)
    assert isinstance(outcome, Dead)
    assert outcome.failure.code is FailureCode.ATTEMPTS_EXHAUSTED
    assert f"{attempt} attempts" in outcome.failure.message
    assert "storage_unavailable: the store is away" in outcome.failure.message


def test_delays_double_up_to_the_longest() -> None:
    delays = [after_failure(FAULT, attempt=n, most=100, chance=1.0) for n in range(1, 9)]
    assert delays == [
        Retry(FAULT, delay) for delay in (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, LONGEST_SECONDS, LONGEST_SECONDS)
    ]


@given(attempt=st.integers(1, 99), chance=st.floats(0, 1))
def test_retry_delays_are_drawn_from_the_upper_half(attempt: int, chance: float) -> None:
    longest = after_failure(PASSING, attempt=attempt, most=100, chance=1.0)
    drawn = after_failure(PASSING, attempt=attempt, most=100, chance=chance)
    assert isinstance(longest, Retry)
    assert isinstance(drawn, Retry)
    assert longest.delay / 2 <= drawn.delay <= longest.delay
    assert drawn.delay == pytest.approx(longest.delay * (1 + chance) / 2)
