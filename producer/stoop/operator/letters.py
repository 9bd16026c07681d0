"""Reads dead letters. Anybody may have written them, so every field may be missing or wrong."""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from stoop.operator.port import DeadLetter

__all__ = ["facts_of", "job_of", "read_failure", "read_letter", "text_of"]

_COUNT = re.compile(rb"[0-9]{1,18}")


class _Cause(msgspec.Struct):
    code: object = "unknown"
    message: object = ""


_CAUSES = msgspec.json.Decoder(_Cause)
_NO_CAUSE = _Cause()


def read_letter(entry: bytes, fields: Mapping[bytes, bytes]) -> DeadLetter:
    """Read a letter whose every field may be missing or wrong."""
    named = (fields.get(name, b"") for name in (b"lane", b"attempt", b"failure", b"tenant"))
    known = read_failure(entry, fields.get(b"id", entry), *named)
    return msgspec.structs.replace(
        known,
        crashes=_count(fields.get(b"crashes", b"")),
        worker=text_of(fields.get(b"worker", b"")),
        packed=job_of(fields),
    )


def read_failure(entry: bytes, job_id: bytes, lane: bytes, attempt: bytes, failure: bytes, tenant: bytes) -> DeadLetter:
    """Read a letter without its job."""
    try:
        cause = _CAUSES.decode(failure)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        cause = _NO_CAUSE
    letter = entry.decode()
    return DeadLetter(
        letter=letter,
        job_id=text_of(job_id),
        lane=text_of(lane),
        attempt=_count(attempt),
        crashes=0,
        worker="",
        code=str(cause.code),
        message=str(cause.message),
        at=int(letter.partition("-")[0]),
        packed=b"",
        tenant=text_of(tenant),
    )


def job_of(fields: Mapping[bytes, bytes]) -> bytes:
    """Return an entry's job, unchanged."""
    return fields.get(b"j", fields.get(b"m", b""))


def facts_of(packed: bytes) -> dict[str, Any]:
    """Return the JSON object; an empty one for anything else."""
    try:
        facts = msgspec.json.decode(packed)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return facts if isinstance(facts, dict) else {}


def text_of(value: bytes) -> str:
    """Decode bytes that anybody may have written."""
    return value.decode(errors="backslashreplace")


def _count(value: bytes) -> int:
    return int(value) if _COUNT.fullmatch(value) else 0
