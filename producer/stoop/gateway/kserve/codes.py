"""One table from our errors to the codes of Triton and gRPC. Both carry a code and a message, and nothing else."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from stoop.gateway.errors import ApiError
from stoop_schemas.failure import FailureCode

__all__ = ["Codes", "codes_of", "message_of"]


class Codes(NamedTuple):
    """The names of one kind of error: in Triton's `TritonError` and in gRPC's `StatusCode`."""

    triton: str
    grpc: str


_NOT_FOUND: Final = Codes("NOT_FOUND", "NOT_FOUND")

_BY_CODE: Final[Mapping[str, Codes]] = {
    FailureCode.UNSUPPORTED_SKILL: Codes("UNSUPPORTED", "UNIMPLEMENTED"),
    FailureCode.IMAGE_NOT_FOUND: _NOT_FOUND,
    FailureCode.AUDIO_NOT_FOUND: _NOT_FOUND,
    FailureCode.CANCELLED: Codes("CANCELLED", "CANCELLED"),
}
"""The errors that have codes of their own in Triton or gRPC, but not in HTTP."""

_BY_STATUS: Final[Mapping[int, Codes]] = {
    400: Codes("INVALID_ARG", "INVALID_ARGUMENT"),
    401: Codes("INVALID_ARG", "UNAUTHENTICATED"),
    403: Codes("INVALID_ARG", "PERMISSION_DENIED"),
    404: _NOT_FOUND,
    409: Codes("ALREADY_EXISTS", "ALREADY_EXISTS"),
    413: Codes("INVALID_ARG", "INVALID_ARGUMENT"),
    429: Codes("UNAVAILABLE", "RESOURCE_EXHAUSTED"),
    500: Codes("INTERNAL", "INTERNAL"),
    503: Codes("UNAVAILABLE", "UNAVAILABLE"),
    504: Codes("UNAVAILABLE", "DEADLINE_EXCEEDED"),
}


def codes_of(error: ApiError) -> Codes:
    """Return the codes of an error."""
    return _BY_CODE.get(error.code) or _BY_STATUS.get(error.status) or Codes("UNKNOWN", "UNKNOWN")


def message_of(error: ApiError) -> str:
    """Return the error's message after our own code, which is finer than either protocol's."""
    return f"{error.code}: {error.message}"
