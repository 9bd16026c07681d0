"""The closed set of codes for a job that did not complete; a table says which ones are retried."""

from enum import StrEnum

import msgspec

__all__ = ["RETRYABLE", "Failure", "FailureCode", "Rejected"]


class FailureCode(StrEnum):
    """The closed set of reasons; the member's comment says what to do about it."""

    MALFORMED = "malformed"  # not a job of this contract: mend the producer
    UNSUPPORTED_SKILL = "unsupported_skill"  # no such skill, or not with this model
    UNSUPPORTED_MODEL = "unsupported_model"  # another model than this worker's: see `stoop models`
    INVALID_ARGUMENT = "invalid_argument"  # a value out of its range
    IMAGE_NOT_FOUND = "image_not_found"  # nothing at that address
    IMAGE_FORBIDDEN = "image_forbidden"  # the worker may not read it
    IMAGE_TOO_LARGE = "image_too_large"  # over the worker's limit on bytes, pixels or the work of decoding
    IMAGE_UNDECODABLE = "image_undecodable"  # not an image of an accepted format
    IMAGE_TIMEOUT = "image_timeout"  # the store did not deliver in time
    STORAGE_UNAVAILABLE = "storage_unavailable"  # the store answered with an error or not at all
    AUDIO_NOT_FOUND = "audio_not_found"  # nothing at that address
    AUDIO_FORBIDDEN = "audio_forbidden"  # the worker may not read it
    AUDIO_TOO_LARGE = "audio_too_large"  # over the worker's limit on bytes, seconds or the work of decoding
    AUDIO_UNDECODABLE = "audio_undecodable"  # not audio of an accepted format
    AUDIO_TIMEOUT = "audio_timeout"  # the store did not deliver in time
    CONTEXT_OVERFLOW = "context_overflow"  # the prompt does not fit the model
    QUEUE_FULL = "queue_full"  # the lane is at its bound: submit later
    ATTEMPTS_EXHAUSTED = "attempts_exhausted"  # every attempt failed
    WORKER_LOST = "worker_lost"  # the worker died under the job
    ENGINE_FAULT = "engine_fault"  # the engine broke under the job
    DEADLINE_EXCEEDED = "deadline_exceeded"  # the answer came too late to matter
    CANCELLED = "cancelled"  # someone asked for it
    INTERNAL = "internal"  # a defect of ours: report it


RETRYABLE = frozenset(
    {
        FailureCode.IMAGE_TIMEOUT,
        FailureCode.AUDIO_TIMEOUT,
        FailureCode.STORAGE_UNAVAILABLE,
        FailureCode.WORKER_LOST,
        FailureCode.ENGINE_FAULT,
        FailureCode.INTERNAL,
    }
)
"""The codes for which the same job may succeed if it is run again."""


class Failure(msgspec.Struct, frozen=True):
    """The failure of a job that did not complete."""

    code: FailureCode
    message: str
    retryable: bool = False

    @classmethod
    def of(cls, code: FailureCode, message: str) -> "Failure":
        """Build a failure whose `retryable` follows the table."""
        return cls(code=code, message=message, retryable=code in RETRYABLE)


class Rejected(ValueError):
    """A message or a job that this contract does not accept; carries the `failure`.

    `field` is the path of the job's field at fault, such as `settings.top_p`; None if no single field is.
    """

    def __init__(self, code: FailureCode, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.failure = Failure.of(code, message)
        self.field = field
