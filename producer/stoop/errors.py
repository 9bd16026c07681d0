"""Everything the client raises on purpose.

StoopError
├── ConfigError            the configuration cannot work; says what to change
├── InvalidJob             the job breaks the contract; carries the `failure`
├── QueueFull              the lane is at its bound; carries `retry_after`
├── IdempotencyConflict    another job was submitted under this key; carries its `job_id`
├── NotFound               the queue knows no such job or dead letter
├── NotAQueue              what Redis holds or can do is not what the queue needs
├── QueueUnavailable       Redis cannot be reached or refuses the client
├── ImageUnreadable        what was given as the image is none, or cannot be read
├── UploadFailed           the object store did not take or give the image
├── JobFailed              the job ended without an answer; carries `failure` and `result`
├── JobCancelled           someone asked for the job to end
├── JobExpired             the job's deadline passed before its answer
├── JobRestarted           a text stream cannot take back what it has given
└── TimedOut               no answer within the time the caller gave; the job itself goes on
"""

from schemas.failure import Failure
from schemas.result import Result
from schemas.state import State

__all__ = [
    "ConfigError",
    "IdempotencyConflict",
    "ImageUnreadable",
    "InvalidJob",
    "JobCancelled",
    "JobExpired",
    "JobFailed",
    "JobRestarted",
    "NotAQueue",
    "NotFound",
    "QueueFull",
    "QueueUnavailable",
    "StoopError",
    "TimedOut",
    "UploadFailed",
]


class StoopError(Exception):
    """The client could not do what was asked."""


class ConfigError(StoopError):
    """The configuration cannot work."""


class InvalidJob(StoopError, ValueError):
    """The job breaks the contract; `failure` has the code and what to mend."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class QueueFull(StoopError):
    """The lane is at its bound; try again after `retry_after` seconds."""

    def __init__(self, retry_after: float) -> None:
        super().__init__(f"the queue is full: submit again in {retry_after:g} s, or run more workers")
        self.retry_after = retry_after


class IdempotencyConflict(StoopError):
    """Job `job_id` holds this idempotency key and is a different job."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"the idempotency key belongs to the different job {job_id}: use another key")
        self.job_id = job_id


class NotFound(StoopError, LookupError):
    """The queue knows no such job or dead letter, or not any more."""


class NotAQueue(StoopError):
    """Redis answers, but its keys or commands are not what the queue needs; says what to change."""


class QueueUnavailable(StoopError):
    """Redis cannot be reached, or refuses the client."""


class ImageUnreadable(StoopError, ValueError):
    """What was given as the image is none, or cannot be read."""


class UploadFailed(StoopError):
    """The object store did not take or give the image."""


class JobFailed(StoopError):
    """The job ended without an answer; `failure` says why, `result` is all that is kept of it."""

    def __init__(self, failure: Failure, result: Result) -> None:
        super().__init__(f"{failure.code}: {failure.message}")
        self.failure = failure
        self.result = result


class JobCancelled(StoopError):
    """The job was cancelled before its answer."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"job {job_id} was cancelled")
        self.job_id = job_id


class JobExpired(StoopError):
    """The job's deadline passed before its answer."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"the deadline of job {job_id} passed: submit it again with a later one")
        self.job_id = job_id


class JobRestarted(StoopError):
    """A worker ran the job anew, and the new text departs from what was given out already."""

    def __init__(self, job_id: str) -> None:
        super().__init__(
            f"job {job_id} was run anew and its text changed: read result({job_id!r}), or use stream() to see restarts"
        )
        self.job_id = job_id


class TimedOut(StoopError, TimeoutError):
    """No answer came within the time the caller gave; the job goes on in the queue.

    `state` is where it stood then, None if the queue did not know it, or could not be asked.
    """

    def __init__(self, job_id: str, timeout: float, state: State | None = None) -> None:
        super().__init__(f"no answer for job {job_id} after {timeout:g} s: {_stands(state)}")
        self.job_id = job_id
        self.timeout = timeout
        self.state = state


def _stands(state: State | None) -> str:
    match state:
        case State.QUEUED:
            return "it still waits in its lane: is a worker running? result() waits again, cancel() ends it"
        case State.RUNNING:
            return "it is running: result() waits again, with a longer timeout; cancel() ends it"
        case State.DELAYED:
            return "it failed and will be tried again: result() waits for that, cancel() ends it"
        case None:
            return "the queue does not know it (yet): is a worker running? result() waits again"
    return f"it is {state}: result() tells more"
