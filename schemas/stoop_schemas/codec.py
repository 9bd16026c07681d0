"""Values to bytes and back: JSON, with unknown fields ignored and what is missing or wrong refused.

`pack` makes bytes of any value of the contract; `unpack_*` raise `Rejected` with the reason, and nothing else.
"""

from typing import Final, TypeVar

import msgspec

from schemas.event import Event
from schemas.failure import FailureCode, Rejected
from schemas.job import Job, check
from schemas.result import Result
from schemas.signature import SigningKeys

__all__ = ["PACKED_LIMIT", "pack", "peek_id", "unpack_event", "unpack_job", "unpack_result"]

PACKED_LIMIT: Final = 8 << 20
"""Most bytes of a job; every job within the limits of its fields has fewer, however its JSON is written."""

_T = TypeVar("_T")


class _Peek(msgspec.Struct):
    id: str | None = None


_ENCODER: Final = msgspec.json.Encoder()
_JOB: Final = msgspec.json.Decoder(Job)
_EVENT: Final[msgspec.json.Decoder[Event]] = msgspec.json.Decoder(Event)
_RESULT: Final = msgspec.json.Decoder(Result)
_PEEK: Final = msgspec.json.Decoder(_Peek)

# Besides its own error the decoder lets through what bytes outside UTF-8 and bottomless nesting raise.
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def pack(value: Job | Event | Result) -> bytes:
    """Return the value as JSON; raise `Rejected` (invalid_argument) if part of it, as lone surrogates, has none."""
    try:
        return _ENCODER.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise Rejected(FailureCode.INVALID_ARGUMENT, f"cannot be written as JSON: {error}") from error


def unpack_job(packed: bytes, keys: SigningKeys | None = None) -> Job:
    """Read and check a job; raise `Rejected` (malformed, unsupported_skill, invalid_argument, image_too_large).

    With `keys` its signature is verified before anything in it is read; without, a signature is not looked at.
    """
    if len(packed) > PACKED_LIMIT:
        raise Rejected(FailureCode.MALFORMED, f"the job has {len(packed)} bytes: at most {PACKED_LIMIT}")
    if not packed:
        raise Rejected(FailureCode.MALFORMED, "the entry has no field `j`: put the job there, as JSON")
    if keys is not None:
        keys.verify(packed)
    return check(_unpack(_JOB, packed, "a job"))


def unpack_event(packed: bytes) -> Event:
    """Read an event; raise `Rejected` if it is none."""
    return _unpack(_EVENT, packed, "an event")


def unpack_result(packed: bytes) -> Result:
    """Read a result; raise `Rejected` if it is none."""
    return _unpack(_RESULT, packed, "a result")


def peek_id(packed: bytes) -> str | None:
    """Return the id in what may be a job, however wrong the rest is, or None if none can be read."""
    try:
        return _PEEK.decode(packed).id
    except _UNREADABLE:
        return None


def _unpack(decoder: msgspec.json.Decoder[_T], packed: bytes, kind: str) -> _T:
    try:
        return decoder.decode(packed)
    except msgspec.ValidationError as error:
        raise Rejected(_code(error), f"not {kind}: {error}") from error
    except _UNREADABLE as error:
        raise Rejected(FailureCode.MALFORMED, f"not JSON: {error}") from error


def _code(error: msgspec.ValidationError) -> FailureCode:
    """Tell a skill we do not know from a message we cannot read; msgspec says which only in its text."""
    unknown_skill = "Invalid enum value" in str(error) and str(error).endswith("`$.skill`")
    return FailureCode.UNSUPPORTED_SKILL if unknown_skill else FailureCode.MALFORMED
