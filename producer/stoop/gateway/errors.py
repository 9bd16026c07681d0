"""One table from failures to HTTP: status, code and whether to try again. Every route answers in this one shape.

    {"error": {"message": str, "type": str, "code": str, "param": str | null}}

It is OpenAI's shape, whose clients show all four. They repeat 409, 429 and every status from 500 on, unless
`x-should-retry: false` says that repeating is useless.
"""

import math
import re
from collections.abc import Mapping
from typing import Final

import msgspec

from stoop.errors import (
    AudioUnreadable,
    ConfigError,
    IdempotencyConflict,
    ImageUnreadable,
    InvalidJob,
    JobCancelled,
    JobExpired,
    JobFailed,
    JobRestarted,
    NotFound,
    OutputGone,
    QueueFull,
    QueueUnavailable,
    StoopError,
    TimedOut,
    UploadFailed,
)
from stoop_schemas.failure import Failure, FailureCode

__all__ = ["ApiError", "from_stoop", "in_names_of", "shutting_down"]

_TYPES: Final[Mapping[int, str]] = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    504: "timeout_error",
}
_FINAL: Final = (409, 500, 504)
"""Statuses that clients would repeat in vain: the queue has tried again already, or would answer the same."""

_RETRY_SECONDS: Final = 1.0

_STATUSES: Final[Mapping[FailureCode, int]] = {
    FailureCode.MALFORMED: 400,
    FailureCode.UNSUPPORTED_SKILL: 400,
    FailureCode.UNSUPPORTED_MODEL: 404,
    FailureCode.INVALID_ARGUMENT: 400,
    FailureCode.IMAGE_NOT_FOUND: 400,
    FailureCode.IMAGE_FORBIDDEN: 400,
    FailureCode.IMAGE_TOO_LARGE: 413,
    FailureCode.IMAGE_UNDECODABLE: 400,
    FailureCode.AUDIO_NOT_FOUND: 400,
    FailureCode.AUDIO_FORBIDDEN: 400,
    FailureCode.AUDIO_TOO_LARGE: 413,
    FailureCode.AUDIO_UNDECODABLE: 400,
    FailureCode.CONTEXT_OVERFLOW: 400,
    FailureCode.QUEUE_FULL: 429,
    FailureCode.DEADLINE_EXCEEDED: 504,
    FailureCode.CANCELLED: 409,
}
"""Every other failure is a 500: a store or a worker that failed after all attempts."""

_CODES: Final[Mapping[FailureCode, str]] = {
    FailureCode.UNSUPPORTED_MODEL: "model_not_found",
    FailureCode.CONTEXT_OVERFLOW: "context_length_exceeded",
}
"""OpenAI's own codes; for all other failures the code is the failure's."""


_SETTING: Final = re.compile(r"\bsettings\.\w+")
_NO_PARAMETERS: Final = ("id", "tenant", "idempotency_key", "traceparent", "signature")
"""Fields of a job that no body of a request has."""

_STORE_REFUSES: Final = (
    "the object store refuses this gateway: its operator must check its credentials and their rights, which are"
    " s3:GetObject, s3:ListBucket, s3:PutObject and s3:DeleteObject"
)


class ApiError(Exception):
    """A request that gets no answer: its status, code and message. `param` names the field at fault.

    `retry_after` is in seconds. The message ends with the job's id if there is one.
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        param: str | None = None,
        retry_after: float | None = None,
        job_id: str | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message if job_id is None or job_id in message else f"{message} (job {job_id})"
        self.param = param
        self.retry_after = _RETRY_SECONDS if retry_after is None and status == 503 else retry_after
        self.job_id = job_id

    @property
    def type(self) -> str:
        """OpenAI's name for this kind of error."""
        return _TYPES.get(self.status, "server_error" if self.status >= 500 else "invalid_request_error")

    @property
    def body(self) -> bytes:
        """The error as JSON."""
        error = {"message": self.message, "type": self.type, "param": self.param, "code": self.code}
        return msgspec.json.encode({"error": error})

    @property
    def headers(self) -> dict[str, str]:
        """The headers that say whether and when to try again."""
        headers = {"www-authenticate": "Bearer"} if self.status == 401 else {}
        if self.status in _FINAL:
            headers["x-should-retry"] = "false"
        if self.retry_after is not None:
            headers["retry-after"] = str(max(1, math.ceil(self.retry_after)))
            headers["retry-after-ms"] = str(math.ceil(1000 * self.retry_after))
        if self.job_id is not None:
            headers["x-stoop-job-id"] = self.job_id
        return headers


def shutting_down() -> ApiError:
    """Return the error for a caller whose answer would come after the shutdown."""
    return ApiError(503, "server_shutting_down", "the gateway is shutting down: ask again")


def from_stoop(error: StoopError, job_id: str | None = None) -> ApiError:
    """Return the HTTP form of an error of the client."""
    match error:
        case InvalidJob(failure=failure, field=field):
            api_error = _failed(failure, job_id)
            api_error.param = None if field in _NO_PARAMETERS else field
            return api_error
        case JobFailed(failure=failure, result=result):
            return _failed(failure, result.id or job_id)
        case AudioUnreadable():
            return ApiError(400, FailureCode.AUDIO_UNDECODABLE, str(error))
        case ImageUnreadable():
            return ApiError(400, FailureCode.IMAGE_UNDECODABLE, str(error))
        case QueueFull(retry_after=retry_after):
            return ApiError(429, FailureCode.QUEUE_FULL, str(error), retry_after=retry_after)
        case OutputGone():
            return ApiError(410, "result_expired", str(error), job_id=error.job_id)
        case NotFound():
            return ApiError(404, "job_not_found", "there is no such job, or not any more", job_id=job_id)
        case _:
            return _unanswered(error, job_id)


def in_names_of(names: Mapping[str, str], error: InvalidJob) -> ApiError:
    """Return the HTTP form of a refusal, with the caller's own names of the job's fields, as in `Ask.names`."""
    api_error = from_stoop(error)
    if api_error.param is not None:
        api_error.param = names.get(api_error.param, api_error.param)
    # other fields keep their names: in a message they are also words, such as image and question
    api_error.message = _SETTING.sub(lambda found: names.get(found[0], found[0]), api_error.message)
    return api_error


def _failed(failure: Failure, job_id: str | None) -> ApiError:
    code = _CODES.get(failure.code, failure.code)
    return ApiError(_STATUSES.get(failure.code, 500), code, failure.message, job_id=job_id)


def _unanswered(error: StoopError, job_id: str | None) -> ApiError:
    match error:
        case IdempotencyConflict():
            return ApiError(409, "idempotency_conflict", str(error), job_id=error.job_id)
        case JobCancelled():
            return ApiError(409, FailureCode.CANCELLED, "the job was cancelled", job_id=error.job_id)
        case JobExpired():
            message = "the deadline passed before the answer: submit it again with a later one"
            return ApiError(504, FailureCode.DEADLINE_EXCEEDED, message, job_id=error.job_id)
        case TimedOut():
            return ApiError(504, "timed_out", _timed_out(error), job_id=error.job_id)
        case JobRestarted():
            message = "a worker was lost and the new answer differs from the text already sent: ask again"
            return ApiError(500, "stream_restarted", message, job_id=error.job_id)
        case QueueUnavailable():
            # the message names the address of Redis, which callers must not see
            return ApiError(503, "queue_unavailable", "the queue cannot be reached: try again later", job_id=job_id)
        case UploadFailed(refused=True):
            return ApiError(500, "gateway_misconfigured", _STORE_REFUSES, job_id=job_id)
        case UploadFailed():
            # the message names the address of the store, which callers must not see
            return ApiError(503, "store_unavailable", "the object store cannot be reached: try again later")
        case ConfigError():
            return ApiError(500, "gateway_misconfigured", f"the gateway cannot do this: {error}", job_id=job_id)
        case _:
            return ApiError(500, "internal", "the gateway cannot read the queue's answer", job_id=job_id)


def _timed_out(error: TimedOut) -> str:
    problem = f"no answer in {error.timeout:g} s"
    if error.cancelled:
        return f"{problem}, so the job is cancelled; with an idempotency key it goes on, and you can ask again for it"
    return f"{problem}; the job goes on: read it at /v1/jobs/{error.job_id}"
