"""Decides between another attempt after a delay and the end, for a run that failed."""

from typing import Final

from stoop_schemas.failure import Failure, FailureCode
from stoop_worker.jobs.backoff import backoff_seconds
from stoop_worker.jobs.outcome import Dead, Failed, Outcome, Retry

__all__ = ["FIRST_SECONDS", "LONGEST_SECONDS", "STORE_FIRST_SECONDS", "after_failure"]

FIRST_SECONDS: Final = 1.0
"""Longest delay before the second attempt."""

STORE_FIRST_SECONDS: Final = 8.0
"""The same after a failure of the store: one that restarts is away for seconds, and attempts have their own retries."""

LONGEST_SECONDS: Final = 60.0
"""Longest delay before any attempt."""

_OF_THE_STORE = (FailureCode.STORAGE_UNAVAILABLE, FailureCode.IMAGE_TIMEOUT, FailureCode.AUDIO_TIMEOUT)


def after_failure(failure: Failure, *, attempt: int, most: int, chance: float) -> Outcome:
    """Return the outcome of a failed run, which was attempt number `attempt` (from 1) of at most `most`.

    A retryable failure is tried again after a delay that grows with each attempt; `chance` as in `backoff_seconds`.
    After the last attempt the job becomes a dead letter. Do not count runs that ended because their worker died.
    """
    if not failure.retryable:
        return Failed(failure)
    if attempt >= most:
        last = f"the last of {attempt} attempts failed with {failure.code.value}: {failure.message}"
        return Dead(Failure.of(FailureCode.ATTEMPTS_EXHAUSTED, last))
    first = STORE_FIRST_SECONDS if failure.code in _OF_THE_STORE else FIRST_SECONDS
    return Retry(failure, backoff_seconds(attempt - 1, first=first, longest=LONGEST_SECONDS, chance=chance))
