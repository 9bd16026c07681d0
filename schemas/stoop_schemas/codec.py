"""Values to bytes and back: JSON, with unknown fields ignored and missing or wrong ones refused.

`pack` makes bytes of any value of the contract; `unpack_*` raise `Rejected` with the reason, and nothing else.
"""

from typing import Final, TypeVar, get_args

import msgspec

from stoop_schemas.event import Event, UnknownEvent
from stoop_schemas.failure import FailureCode, Rejected
from stoop_schemas.job import Job, check
from stoop_schemas.result import Result
from stoop_schemas.signature import SigningKeys
from stoop_schemas.skill import Output

__all__ = ["PACKED_LIMIT", "pack", "unpack_event", "unpack_job", "unpack_output", "unpack_result"]

PACKED_LIMIT: Final = 8 << 20
"""Most bytes of a job; every job within the limits of its fields has fewer, however its JSON is written."""

_T = TypeVar("_T")


_ENCODER: Final = msgspec.json.Encoder()
_JOB: Final = msgspec.json.Decoder(Job)
_EVENT: Final[msgspec.json.Decoder[Event]] = msgspec.json.Decoder(Event)
_UNKNOWN_EVENT: Final = msgspec.json.Decoder(UnknownEvent)
_EVENT_TYPES: Final = frozenset(kind.__struct_config__.tag for kind in get_args(Event))
_RESULT: Final = msgspec.json.Decoder(Result)
_OUTPUT: Final = msgspec.json.Decoder(Output)

# Besides its own error the decoder lets through what bytes outside UTF-8 and bottomless nesting raise.
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def pack(value: Job | Event | Result | Output) -> bytes:
    """Return the value as JSON; raise `Rejected` (invalid_argument) if part of it, a lone surrogate, has none."""
    try:
        return _ENCODER.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise Rejected(FailureCode.INVALID_ARGUMENT, f"cannot be written as JSON: {error}") from error


def unpack_job(packed: bytes, keys: SigningKeys | None = None) -> Job:
    """Read and check a job; raise `Rejected` (malformed, unsupported_skill, invalid_argument, image_too_large).

    With `keys` its signature is verified before anything in it is read; without them, signatures are ignored.
    """
    if len(packed) > PACKED_LIMIT:
        raise Rejected(FailureCode.MALFORMED, f"the job has {len(packed)} bytes: at most {PACKED_LIMIT}")
    if not packed:
        raise Rejected(FailureCode.MALFORMED, "the entry has no field `j`: put the job there, as JSON")
    if keys is not None:
        keys.verify(packed)
    return check(_unpack(_JOB, packed, "a job"))


def unpack_event(packed: bytes) -> Event | UnknownEvent:
    """Read an event, an `UnknownEvent` if a later version added its type; raise `Rejected` if it is none."""
    try:
        return _unpack(_EVENT, packed, "an event")
    except Rejected:
        event = _of_unknown_type(packed)
        if event is None:
            raise
        return event


def _of_unknown_type(packed: bytes) -> UnknownEvent | None:
    try:
        event = _UNKNOWN_EVENT.decode(packed)
    except _UNREADABLE:
        return None
    return None if event.type in _EVENT_TYPES else event


def unpack_result(packed: bytes) -> Result:
    """Read a result; raise `Rejected` if it is none."""
    return _unpack(_RESULT, packed, "a result")


def unpack_output(packed: bytes) -> Output:
    """Read an output from the object store; raise `Rejected` if it is none."""
    return _unpack(_OUTPUT, packed, "an output")


def _unpack(decoder: msgspec.json.Decoder[_T], packed: bytes, kind: str) -> _T:
    try:
        return decoder.decode(packed)
    except msgspec.ValidationError as error:
        raise Rejected(FailureCode.MALFORMED, f"not {kind}: {error}") from error
    except _UNREADABLE as error:
        raise Rejected(FailureCode.MALFORMED, f"not JSON: {error}") from error
