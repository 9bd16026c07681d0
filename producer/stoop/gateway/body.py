"""Reads a request's body within its bound, and makes JSON a typed value.

A body is bounded by its `Content-Length` before it is read, and by its counted bytes while it is read, because a
chunked body has no length.
"""

import re
from typing import Final, TypeVar

import msgspec

from stoop.gateway.call import Call
from stoop.gateway.errors import ApiError
from stoop.gateway.wait import CallerLeft

__all__ = ["convert_body", "read_body", "read_json", "too_large"]

_T = TypeVar("_T")

_JSON_TYPE: Final = re.compile(r"application/([\w.+-]+\+)?json")
_FIELD: Final = re.compile(r"(?:missing required|contains unknown) field `([^`]*)`")
_WHERE: Final = re.compile(r" - at `\$\.?(.*)`$")
# beside its own errors the decoder lets through the errors of bad UTF-8 and of endless nesting
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


async def read_body(call: Call, limit: int) -> bytes:
    """Return the body; raise an `ApiError` (413) if it has more than `limit` bytes."""
    length = call.header("content-length") or "0"
    if not length.isdecimal() or int(length) > limit:
        raise too_large(limit)
    chunks, size = [], 0
    while True:
        message = await call.request.receive()
        if message["type"] == "http.disconnect":
            raise CallerLeft
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > limit:
            raise too_large(limit)
        chunks.append(chunk)
        if not message.get("more_body", False):
            return b"".join(chunks)


async def read_json(call: Call, kind: type[_T]) -> _T:
    """Return the body as a value of this type; raise an `ApiError` (400, 413 or 415) that names the field at fault."""
    media_type = (call.header("content-type") or "").partition(";")[0].strip().lower()
    if not _JSON_TYPE.fullmatch(media_type):
        # a page of another origin can send every other type without asking the browser first
        raise ApiError(415, "unsupported_media_type", "send JSON, with the header `Content-Type: application/json`")
    body = await read_body(call, call.gateway.options.max_json_bytes)
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise _wrong(error) from None
    except _UNREADABLE:
        raise ApiError(400, "invalid_json", "the body is not JSON in UTF-8") from None


def convert_body(value: object, kind: type[_T]) -> _T:
    """Return decoded JSON, or a form's fields, as a value of this type; raise an `ApiError` (400) as `read_json`."""
    try:
        return msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError as error:
        raise _wrong(error) from None


def too_large(limit: int) -> ApiError:
    """Return the error for a body of more than `limit` bytes."""
    return ApiError(413, "body_too_large", f"the body is larger than {limit} bytes")


def _wrong(error: msgspec.ValidationError) -> ApiError:
    message = str(error)
    where = _WHERE.search(message)
    field = _FIELD.search(message)
    named = ".".join(filter(None, (where[1] if where else "", field[1] if field else "")))
    return ApiError(400, "invalid_value", message[:1].lower() + message[1:], param=named[:128] or None)
