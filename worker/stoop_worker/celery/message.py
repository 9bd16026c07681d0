"""Reads a Celery message (protocol 2, as kombu writes it to Redis) as a job, or refuses it with a reason."""

import base64
import binascii
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from stoop_schemas import celery as dialect
from stoop_schemas.codec import PACKED_LIMIT
from stoop_schemas.failure import FailureCode, Rejected
from stoop_schemas.job import Job, check
from stoop_schemas.signature import SigningKeys
from stoop_schemas.skill import Settings
from stoop_schemas.skills import skills, spec_of

__all__ = ["Canvas", "Message", "read_body", "read_job", "read_message"]

_TEXT: Final = ("application/json", "utf-8")


class _Headers(msgspec.Struct, frozen=True):
    task: str
    id: str
    root_id: str | None = None
    parent_id: str | None = None
    group: str | None = None
    group_index: int | None = None
    expires: str | None = None
    retries: int | None = None
    ignore_result: bool | None = None
    replaced_task_nesting: int | None = None
    stamped_headers: list[str] | None = None
    stamps: dict[str, Any] | None = None
    compression: str | None = None


class _Properties(msgspec.Struct, frozen=True):
    body_encoding: str | None = None
    reply_to: str | None = None
    correlation_id: str | None = None
    priority: int | None = None


class Message(msgspec.Struct, frozen=True, rename="kebab"):
    """A Celery message whose body is not decoded yet."""

    headers: _Headers
    body: str
    content_type: str
    content_encoding: str
    properties: _Properties = _Properties()


class Canvas(msgspec.Struct, frozen=True):
    """The tasks that follow a task, as Celery's own signatures."""

    callbacks: list[Any] | None = None
    errbacks: list[Any] | None = None
    chain: list[Any] | None = None
    chord: Any = None

    def __bool__(self) -> bool:
        return bool(self.callbacks or self.errbacks or self.chain or self.chord)


_MESSAGE: Final = msgspec.json.Decoder(Message)
_BODY: Final[msgspec.json.Decoder[tuple[list[Any], dict[str, Any], Canvas]]] = msgspec.json.Decoder(
    tuple[list[Any], dict[str, Any], Canvas]
)
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def read_message(packed: bytes, keys: SigningKeys | None) -> Message:
    """Read the envelope; raises `Rejected` (malformed) if it is not one or, with `keys`, if it is not signed."""
    if len(packed) > PACKED_LIMIT:
        raise _malformed(f"it has {len(packed)} bytes: at most {PACKED_LIMIT}")
    if keys is not None:
        keys.verify(packed)
    try:
        return _MESSAGE.decode(packed)
    except _UNREADABLE as error:
        raise _malformed(str(error)) from error


def read_body(message: Message) -> tuple[list[Any], dict[str, Any], Canvas]:
    """Read arguments and canvas; raises `Rejected` (malformed) for anything except plain JSON."""
    if (message.content_type, message.content_encoding.lower()) != _TEXT or message.headers.compression:
        raise _malformed("only uncompressed JSON is read: set task_serializer to json")
    try:
        encoded = message.body.encode()
        body = base64.b64decode(encoded, validate=True) if message.properties.body_encoding == "base64" else encoded
        return _BODY.decode(body)
    except (*_UNREADABLE, UnicodeEncodeError, binascii.Error) as error:
        raise _malformed(f"its body: {error}") from error


def read_job(message: Message) -> Job:
    """Return the job that the message asks for; raises `Rejected` for an unknown task or invalid arguments."""
    headers = message.headers
    skill = dialect.skill_of(headers.task)
    if skill is None or skill not in skills():
        known = ", ".join(map(dialect.task, skills()))
        raise Rejected(FailureCode.UNSUPPORTED_SKILL, f"this worker runs {known}, and no other task")
    args, kwargs, _ = read_body(message)
    fields = {**_bound(skill, args, kwargs), "id": headers.id, "skill": skill}
    if headers.expires is not None and "deadline" not in fields:
        fields["deadline"] = _in_ms(headers.expires)
    try:
        return check(msgspec.convert(fields, Job))
    except msgspec.ValidationError as error:
        raise Rejected(FailureCode.INVALID_ARGUMENT, f"the task's arguments: {error}") from error


def _bound(skill: str, args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    names = spec_of(skill).fields
    if len(args) > len(names):
        raise _wrong(f"{dialect.task(skill)} takes {' and '.join(names)} by position, but was given {len(args)}")
    given = dict(zip(names, args, strict=False))
    for name in kwargs:
        if name not in dialect.OPTIONS:
            where = ": it goes into `settings`" if name in Settings.__struct_fields__ else ""
            raise _wrong(f"a job has no field {name[:64]!r}{where}")
        if name in given:
            raise _wrong(f"{name} was given twice")
    return {name: value for name, value in {**given, **kwargs}.items() if value is not None}


def _in_ms(expires: str) -> int:
    try:
        moment = datetime.fromisoformat(expires)
    except ValueError:
        raise _malformed("its expiry time is not an ISO 8601 date") from None
    return max(1, round(1000 * (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()))


def _malformed(reason: str) -> Rejected:
    return Rejected(FailureCode.MALFORMED, f"not a Celery message for this worker: {reason}")


def _wrong(reason: str) -> Rejected:
    return Rejected(FailureCode.INVALID_ARGUMENT, f"the task's arguments: {reason}")
