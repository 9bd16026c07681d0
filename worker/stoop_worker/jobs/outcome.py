"""The outcomes of a delivery: a closed set, and the table from our exceptions to failure codes."""

from dataclasses import dataclass

from stoop_schemas.failure import Failure, FailureCode
from stoop_worker import errors

__all__ = ["Cancelled", "Completed", "Crashed", "Dead", "Expired", "Failed", "Outcome", "Released", "Retry", "code_of"]


@dataclass(frozen=True, slots=True)
class Completed:
    """The job has its answer."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The job ends without an answer, because another attempt would not help."""

    failure: Failure


@dataclass(frozen=True, slots=True)
class Retry:
    """The job runs again after `delay` seconds."""

    failure: Failure
    delay: float


@dataclass(frozen=True, slots=True)
class Dead:
    """The entry becomes a dead letter, because it is not a job or every attempt failed."""

    failure: Failure


@dataclass(frozen=True, slots=True)
class Cancelled:
    """Someone cancelled the job."""


@dataclass(frozen=True, slots=True)
class Expired:
    """The job's deadline passed."""


@dataclass(frozen=True, slots=True)
class Released:
    """The job goes back to its lane, and the attempt does not count."""


@dataclass(frozen=True, slots=True)
class Crashed:
    """The engine died with the job inside: the job goes to the quarantine, and the crash counts."""


Outcome = Completed | Failed | Retry | Dead | Cancelled | Expired | Released | Crashed

_CODES: dict[type[errors.WorkerError], FailureCode] = {
    errors.ImageNotFound: FailureCode.IMAGE_NOT_FOUND,
    errors.ImageForbidden: FailureCode.IMAGE_FORBIDDEN,
    errors.ImageTooLarge: FailureCode.IMAGE_TOO_LARGE,
    errors.ImageUndecodable: FailureCode.IMAGE_UNDECODABLE,
    errors.ImageTimeout: FailureCode.IMAGE_TIMEOUT,
    errors.ImageAddressInvalid: FailureCode.INVALID_ARGUMENT,
    errors.AudioNotFound: FailureCode.AUDIO_NOT_FOUND,
    errors.AudioForbidden: FailureCode.AUDIO_FORBIDDEN,
    errors.AudioTooLarge: FailureCode.AUDIO_TOO_LARGE,
    errors.AudioUndecodable: FailureCode.AUDIO_UNDECODABLE,
    errors.AudioTimeout: FailureCode.AUDIO_TIMEOUT,
    errors.AudioAddressInvalid: FailureCode.INVALID_ARGUMENT,
    errors.StorageUnavailable: FailureCode.STORAGE_UNAVAILABLE,
    errors.EngineFault: FailureCode.ENGINE_FAULT,
}


def code_of(error: errors.WorkerError) -> FailureCode:
    """Return the failure code of an exception, or `internal` for an exception that the table lacks."""
    return _CODES.get(type(error), FailureCode.INTERNAL)
