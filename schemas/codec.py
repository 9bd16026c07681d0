"""Values to bytes and back: JSON, with unknown fields ignored and what is missing or wrong refused.

`pack` makes bytes of any value of the contract; `unpack_*` raise `Rejected` with the reason.
"""

import msgspec

from schemas.event import Event
from schemas.failure import FailureCode, Rejected
from schemas.job import Job, check
from schemas.result import Result

__all__ = ["pack", "peek_id", "unpack_event", "unpack_job", "unpack_result"]


class _Peek(msgspec.Struct):
    id: str | None = None


_ENCODER = msgspec.json.Encoder()
_JOB = msgspec.json.Decoder(Job)
_EVENT: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)
_RESULT = msgspec.json.Decoder(Result)
_PEEK = msgspec.json.Decoder(_Peek)


def pack(value: Job | Event | Result) -> bytes:
    """Return the value as JSON."""
    return _ENCODER.encode(value)


def unpack_job(packed: bytes) -> Job:
    """Read and check a job; raise `Rejected` (malformed, unsupported_skill, invalid_argument)."""
    try:
        return check(_JOB.decode(packed))
    except msgspec.ValidationError as error:
        code = (
            FailureCode.UNSUPPORTED_SKILL
            if str(error).endswith("`$.skill`") and "enum" in str(error)
            else FailureCode.MALFORMED
        )
        raise Rejected(code, f"not a job: {error}") from error
    except msgspec.DecodeError as error:
        raise Rejected(FailureCode.MALFORMED, f"not JSON: {error}") from error


def unpack_event(packed: bytes) -> Event:
    """Read an event; raise `Rejected` if it is none."""
    try:
        return _EVENT.decode(packed)
    except msgspec.DecodeError as error:
        raise Rejected(FailureCode.MALFORMED, f"not an event: {error}") from error


def unpack_result(packed: bytes) -> Result:
    """Read a result; raise `Rejected` if it is none."""
    try:
        return _RESULT.decode(packed)
    except msgspec.DecodeError as error:
        raise Rejected(FailureCode.MALFORMED, f"not a result: {error}") from error


def peek_id(packed: bytes) -> str | None:
    """Return the id in what may be a job, however wrong the rest is, or None if none can be read."""
    try:
        return _PEEK.decode(packed).id
    except msgspec.DecodeError:
        return None
