"""Multipart forms within a bound: the library bounds the fields, and this module the file."""

from typing import Final

from starlette.datastructures import FormData
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import Message

from stoop.gateway.body import too_large
from stoop.gateway.call import Call
from stoop.gateway.errors import ApiError
from stoop.gateway.wait import CallerLeft

__all__ = ["read_form"]

_FIELD_BYTES: Final = 64 << 10
_MOST_FIELDS: Final = 32
_FRAME_BYTES: Final = 1 << 20
"""Room for the fields and the boundaries beside the file."""


async def read_form(call: Call, limit: int) -> FormData:
    """Return a form whose file has at most about `limit` bytes; raise an `ApiError` (400, 413 or 415).

    Files of more than a megabyte lie on disk until the form is closed.
    """
    if not call.request.headers.get("content-type", "").startswith("multipart/form-data"):
        raise ApiError(415, "unsupported_media_type", "send a form: Content-Type: multipart/form-data")
    length = call.request.headers.get("content-length", "0")
    if not length.isdecimal() or int(length) > limit + _FRAME_BYTES:
        raise too_large(limit)
    size = 0

    async def counted() -> Message:
        nonlocal size
        message = await call.request.receive()
        if message["type"] == "http.disconnect":
            raise CallerLeft
        size += len(message.get("body", b""))
        if size > limit + _FRAME_BYTES:
            raise too_large(limit)
        return message

    request = Request(call.request.scope, counted)
    try:
        return await request.form(max_files=1, max_fields=_MOST_FIELDS, max_part_size=_FIELD_BYTES)
    except HTTPException as error:
        raise ApiError(400, "invalid_form", error.detail) from None
