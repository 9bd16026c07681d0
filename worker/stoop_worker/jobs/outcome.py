"""How a delivery ends: a closed set, and the table from our exceptions to failure codes."""

from dataclasses import dataclass

from schemas.failure import Failure, FailureCode
from worker import errors

__all__ = ["Cancelled", "Completed", "Crashed", "Dead", "Expired", "Failed", "Outcome", "Released", "Retry", "code_of"]


@dataclass(frozen=True, slots=True)
class Completed:
    """The job has its answer."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The job ends without an answer, and no other attempt would help."""

    failure: Failure


@dataclass(frozen=True, slots=True)
class Retry:
    """The job is to run again after `delay` seconds."""

    failure: Failure
    delay: float


@dataclass(frozen=True, slots=True)
class Dead:
    """The entry is kept as a dead letter: it is no job, or every attempt failed."""

    failure: Failure


@dataclass(frozen=True, slots=True)
class Cancelled:
    """Someone asked for the job to end."""


@dataclass(frozen=True, slots=True)
class Expired:
    """The job's deadline passed."""


@dataclass(frozen=True, slots=True)
class Released:
    """The job goes back to its lane, the attempt not counted."""


@dataclass(frozen=True, slots=True)
class Crashed:
    """The engine died under the job: it goes to the quarantine, the crash counted."""


Outcome = Completed | Failed | Retry | Dead | Cancelled | Expired | Released | Crashed

_CODES: dict[type[errors.WorkerError], FailureCode] = {
    errors.ImageNotFound: FailureCode.IMAGE_NOT_FOUND,
    errors.ImageForbidden: FailureCode.IMAGE_FORBIDDEN,
    errors.ImageTooLarge: FailureCode.IMAGE_TOO_LARGE,
    errors.ImageUndecodable: FailureCode.IMAGE_UNDECODABLE,
    errors.ImageTimeout: FailureCode.IMAGE_TIMEOUT,
    errors.ImageAddressInvalid: FailureCode.INVALID_ARGUMENT,
    errors.StorageUnavailable: FailureCode.STORAGE_UNAVAILABLE,
    errors.EngineFault: FailureCode.ENGINE_FAULT,
}


def code_of(error: Exception) -> FailureCode:
    """Return the failure code of an exception; what we did not foresee is `internal`."""
    return (
        _CODES.get(type(error), FailureCode.INTERNAL) if isinstance(error, errors.WorkerError) else FailureCode.INTERNAL
    )
