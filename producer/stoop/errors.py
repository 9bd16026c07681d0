"""The exceptions that the client raises on purpose.

StoopError
├── ConfigError            the configuration cannot work; the message names the setting
├── InvalidJob             the job breaks the contract; carries the `failure`
├── QueueFull              the lane is at its bound; carries `retry_after`
├── IdempotencyConflict    another job was submitted under this key or id; carries its `job_id`
├── NotFound               the queue knows no such job or dead letter
│   └── OutputGone         the job completed, but its answer is not in the object store any more
├── OutputUnreadable       the job completed, but this client cannot read its answer
├── NotAQueue              Redis answers, but it holds no queue of this version
├── QueueUnavailable       Redis cannot be reached or refuses the client
├── ClientUnusable         the client is closed, or is another process's or another event loop's
├── ImageUnreadable        the given value is not an image, or cannot be read
├── AudioUnreadable        the given value is not a recording, or cannot be read
├── UploadFailed           the object store did not take or give the file
├── JobFailed              the job ended without an answer; carries `failure` and `result`
├── JobCancelled           someone asked for the job to end
├── JobExpired             the job's deadline passed before its answer
├── JobRestarted           a stream cannot take back text or segments it has returned
└── TimedOut               no answer within the caller's timeout; the message names the job's state
"""

from typing import Final, Self

from stoop_schemas.failure import Failure, Rejected
from stoop_schemas.result import Result
from stoop_schemas.state import State

__all__ = [
    "AudioUnreadable",
    "ClientUnusable",
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
    "OutputGone",
    "OutputUnreadable",
    "QueueFull",
    "QueueUnavailable",
    "StoopError",
    "TimedOut",
    "UploadFailed",
]


class StoopError(Exception):
    """The client could not carry out the call."""


class ConfigError(StoopError):
    """The configuration cannot work."""


class InvalidJob(StoopError, ValueError):
    """The job breaks the contract; `failure` has the code and the remedy.

    `field` is the path of the job's field at fault, such as `settings.top_p`; None if no single field is.
    """

    def __init__(self, failure: Failure, field: str | None = None) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.field = field

    @classmethod
    def of(cls, rejected: Rejected) -> Self:
        """Return the error for what the contract does not accept."""
        return cls(rejected.failure, rejected.field)


class QueueFull(StoopError):
    """The lane is at its bound; try again after `retry_after` seconds."""

    def __init__(self, retry_after: float) -> None:
        super().__init__(f"the queue is full: submit again in {retry_after:g} s, or run more workers")
        self.retry_after = retry_after


class IdempotencyConflict(StoopError):
    """The different job `job_id` was submitted before under this idempotency key or, if `taken` is "id", this id."""

    def __init__(self, job_id: str, *, taken: str = "key") -> None:
        if taken == "id":
            super().__init__(f"the id {job_id} belongs to a different job: give each job an id of its own, or none")
        else:
            super().__init__(f"the idempotency key belongs to the different job {job_id}: use another key")
        self.job_id = job_id
        self.taken = taken


class NotFound(StoopError, LookupError):
    """The queue knows no such job or dead letter, or not any more; check the id and `STOOP_REDIS_URL`."""


class OutputGone(NotFound):
    """The job completed, but its answer is not in the object store any more; submit the job again."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"the answer of job {job_id} is not in the object store any more: submit the job again")
        self.job_id = job_id


class OutputUnreadable(StoopError):
    """The job completed, but this client cannot read its answer; trying again does not help. Says why."""

    def __init__(self, job_id: str, problem: str) -> None:
        super().__init__(problem)
        self.job_id = job_id


class NotAQueue(StoopError):
    """Redis answers, but it is not a queue of this version: it has foreign keys or lacks commands."""


class QueueUnavailable(StoopError):
    """Redis cannot be reached, or refuses the client."""


class ClientUnusable(StoopError):
    """The client is closed, or it belongs to another process or another event loop."""


class ImageUnreadable(StoopError, ValueError):
    """The given value is not an image, or cannot be read."""


class AudioUnreadable(StoopError, ValueError):
    """The given value is not a recording, or cannot be read."""


class UploadFailed(StoopError):
    """The object store did not take or give the file; `absent` is True if it has no such file.

    `refused` is True if the store does not let this client do it: trying again does not help before someone changes its
    rights, its credentials or its bucket.
    """

    def __init__(self, problem: str, *, absent: bool = False, refused: bool = False) -> None:
        super().__init__(problem)
        self.absent = absent
        self.refused = refused


class JobFailed(StoopError):
    """The job ended without an answer; `failure` has the reason, `result` the stored result."""

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
    """A worker ran the job again, and the new text differs from the text already returned."""

    def __init__(self, job_id: str) -> None:
        super().__init__(
            f"job {job_id} ran again and its text changed: read result({job_id!r}), or use stream() to see restarts"
        )
        self.job_id = job_id


class TimedOut(StoopError, TimeoutError):
    """No answer came within the caller's timeout. The job goes on in the queue, unless it is `cancelled`.

    `state` is the job's state then, or None if the queue did not know the job or could not be reached. `facts` is the
    message without its last part, which names methods of the client that help.
    """

    def __init__(self, job_id: str, timeout: float, state: State | None = None, *, cancelled: bool = False) -> None:
        stands, remedy = _CANCELLED if cancelled else _advice(state)
        self.facts = f"no answer for job {job_id} after {timeout:g} s: {stands}"
        super().__init__(f"{self.facts} {remedy}")
        self.job_id = job_id
        self.timeout = timeout
        self.state = state
        self.cancelled = cancelled


_CANCELLED: Final = ("it is cancelled, because its caller stopped waiting:", "submit it again with a longer timeout")


def _advice(state: State | None) -> tuple[str, str]:
    """Return the state of the job in words, and the methods that help."""
    match state:
        case State.QUEUED:
            return "it still waits in its lane: is a worker running?", "result() waits again, cancel() ends it"
        case State.RUNNING:
            return "it is running:", "result() waits again, with a longer timeout; cancel() ends it"
        case State.DELAYED:
            return "it failed and will be tried again:", "result() waits for that, cancel() ends it"
        case None:
            return "the queue does not know it (yet): is a worker running?", "result() waits again"
    return f"it is {state}:", "result() gives the details"
