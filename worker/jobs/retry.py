"""What a failure leads to: another attempt after a while, or the end."""

from typing import Final

from schemas.failure import Failure, FailureCode
from worker.jobs.outcome import Dead, Failed, Outcome, Retry

__all__ = ["FIRST_SECONDS", "LONGEST_SECONDS", "after_failure"]

FIRST_SECONDS: Final = 1.0
"""Longest delay before the second attempt."""

LONGEST_SECONDS: Final = 60.0
"""Longest delay before any attempt."""


def after_failure(failure: Failure, *, attempt: int, most: int, chance: float) -> Outcome:
    """Return how a run ends that failed, the `attempt`-th (from 1) of at most `most`.

    A failure that may pass is tried again after a delay that doubles with each attempt; `chance`, from 0 to 1, draws it
    from the upper half, so that jobs that failed together do not come back together. After the last attempt the job is
    a dead letter. Runs that ended with their worker's death are no attempts: leave them out.
    """
    if not failure.retryable:
        return Failed(failure)
    if attempt >= most:
        last = f"the last of {attempt} attempts failed with {failure.code.value}: {failure.message}"
        return Dead(Failure.of(FailureCode.ATTEMPTS_EXHAUSTED, last))
    longest = min(LONGEST_SECONDS, FIRST_SECONDS * 2.0 ** min(attempt - 1, 30))
    return Retry(failure, delay=longest * (1 + chance) / 2)
