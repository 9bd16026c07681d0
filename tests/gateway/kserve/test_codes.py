import subprocess
import sys

import pytest

from stoop.errors import (
    IdempotencyConflict,
    InvalidJob,
    JobCancelled,
    JobExpired,
    JobFailed,
    QueueFull,
    QueueUnavailable,
    StoopError,
    TimedOut,
)
from stoop.gateway.errors import ApiError, from_stoop
from stoop.gateway.kserve.codes import Codes, codes_of, message_of
from stoop_schemas.failure import Failure, FailureCode
from stoop_schemas.result import Result
from stoop_schemas.state import State

TRITON = {"INTERNAL", "NOT_FOUND", "INVALID_ARG", "UNAVAILABLE", "UNSUPPORTED", "ALREADY_EXISTS", "CANCELLED"}


def failed(code: FailureCode) -> ApiError:
    return from_stoop(JobFailed(Failure.of(code, "why"), Result(id="j1", status=State.FAILED)))


@pytest.mark.parametrize("code", list(FailureCode))
def test_every_failure_has_a_code(code: FailureCode) -> None:
    codes = codes_of(failed(code))
    assert codes.triton in TRITON
    assert codes.grpc != "UNKNOWN"


@pytest.mark.parametrize(
    ("error", "codes"),
    [
        (InvalidJob(Failure.of(FailureCode.INVALID_ARGUMENT, "?")), Codes("INVALID_ARG", "INVALID_ARGUMENT")),
        (InvalidJob(Failure.of(FailureCode.UNSUPPORTED_SKILL, "?")), Codes("UNSUPPORTED", "UNIMPLEMENTED")),
        (QueueFull(2), Codes("UNAVAILABLE", "RESOURCE_EXHAUSTED")),
        (QueueUnavailable("redis"), Codes("UNAVAILABLE", "UNAVAILABLE")),
        (IdempotencyConflict("j1"), Codes("ALREADY_EXISTS", "ALREADY_EXISTS")),
        (JobCancelled("j1"), Codes("CANCELLED", "CANCELLED")),
        (JobExpired("j1"), Codes("UNAVAILABLE", "DEADLINE_EXCEEDED")),
        (TimedOut("j1", 3.0), Codes("UNAVAILABLE", "DEADLINE_EXCEEDED")),
        (StoopError("?"), Codes("INTERNAL", "INTERNAL")),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_the_errors_of_the_client(error: StoopError, codes: Codes) -> None:
    assert codes_of(from_stoop(error)) == codes


@pytest.mark.parametrize(
    ("error", "grpc"),
    [
        (ApiError(401, "invalid_api_key", "?"), "UNAUTHENTICATED"),
        (ApiError(403, "missing_scope", "?"), "PERMISSION_DENIED"),
        (ApiError(429, "rate_limit_exceeded", "?"), "RESOURCE_EXHAUSTED"),
        (ApiError(503, "server_shutting_down", "?"), "UNAVAILABLE"),
        (failed(FailureCode.UNSUPPORTED_MODEL), "NOT_FOUND"),
        (failed(FailureCode.IMAGE_NOT_FOUND), "NOT_FOUND"),
        (failed(FailureCode.IMAGE_TOO_LARGE), "INVALID_ARGUMENT"),
    ],
    ids=lambda value: value.code if isinstance(value, ApiError) else None,
)
def test_the_errors_of_the_gateway(error: ApiError, grpc: str) -> None:
    assert codes_of(error).grpc == grpc


def test_the_message_begins_with_our_own_code_and_keeps_the_job() -> None:
    assert message_of(failed(FailureCode.CONTEXT_OVERFLOW)) == "context_length_exceeded: why (job j1)"


def test_the_package_needs_neither_a_server_nor_a_client_of_either_protocol() -> None:
    names = "starlette", "uvicorn", "sse_starlette", "grpc", "tritonclient", "numpy"
    program = (
        "import sys; from stoop.gateway.kserve import answer, ask, codes, inputs;"
        f"print([name for name in {names} if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
