"""Pictures and recordings of the playground: uploaded once, so that jobs name them by their addresses.

Pictures are shown from the store, too.
"""

import asyncio
from typing import Final

import msgspec
from starlette.responses import Response

from stoop.errors import ConfigError, UploadFailed
from stoop.gateway.answer import json_response
from stoop.gateway.body import read_body
from stoop.gateway.call import Call
from stoop.gateway.errors import ApiError
from stoop.images.source import identify
from stoop_schemas.address import parse_object

__all__ = ["Picture", "Recording", "show_picture", "upload_picture", "upload_recording"]

_SHOWN: Final = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp", "image/bmp", "image/avif"})
"""Formats that a browser draws and that hold no script."""


class Picture(msgspec.Struct, frozen=True):
    """The address at which workers find an uploaded picture."""

    image: str


class Recording(msgspec.Struct, frozen=True):
    """The address at which workers find an uploaded recording."""

    audio: str


async def upload_picture(call: Call) -> Response:
    """Answer `POST /v1/images`, whose body is an encoded image, with the image's address.

    Raises an `ApiError`: 415 for another media type, 413 for too many bytes, 400 for no image, 501 without a bucket.
    """
    image = await _sent(call, ("image/",), "picture", call.gateway.options.max_json_bytes)
    try:
        return json_response(call, Picture(await call.gateway.client.images.address(image)))
    except ConfigError:
        raise _no_bucket("picture") from None


async def upload_recording(call: Call) -> Response:
    """Answer `POST /v1/recordings`, whose body is an audio file or a video, with the recording's address.

    Raises an `ApiError`: 415 for another media type, 413 for too many bytes, 501 without a bucket.
    """
    encoded = await _sent(call, ("audio/", "video/"), "recording", call.gateway.options.max_audio_bytes)
    try:
        return json_response(call, Recording(await call.gateway.client.images.audio_address(encoded)))
    except ConfigError:
        raise _no_bucket("recording") from None


async def show_picture(call: Call) -> Response:
    """Answer `GET /v1/images?address=s3://…` with the picture, if jobs of this key may name it.

    Raises an `ApiError`: 400 for another address, 403 outside the allowed buckets or if the store refuses it, 404 if
    nothing is there, 413 for too many bytes, 415 if it is not a picture.
    """
    address = call.request.query_params.get("address", "")
    if not address.startswith("s3://"):
        raise ApiError(400, "invalid_value", "address must be that of an object: s3://bucket/key", param="address")
    if not _may_read(call, address):
        raise ApiError(403, "image_forbidden", "the address is outside the allowed buckets", param="address")
    limit = call.gateway.options.max_json_bytes
    image = await _read(call, address, limit + 1)
    if len(image) > limit:
        raise ApiError(413, "image_too_large", f"the picture has more than {limit} bytes", param="address")
    _, media_type = await asyncio.to_thread(identify, image, "the object")
    if media_type not in _SHOWN:
        raise ApiError(415, "image_not_shown", f"browsers do not show {media_type}", param="address")
    headers = {**call.headers, "x-content-type-options": "nosniff", "content-security-policy": "sandbox"}
    return Response(image, headers=headers, media_type=media_type)


async def _read(call: Call, address: str, most: int) -> bytes:
    try:
        return await call.gateway.client.images.read(address, most=most)
    except UploadFailed as error:
        if error.absent:
            raise ApiError(404, "image_not_found", "there is no picture at this address", param="address") from error
        if error.refused:
            message = "the object store does not let the gateway read this picture"
            raise ApiError(403, "image_forbidden", message, param="address") from error
        raise


async def _sent(call: Call, types: tuple[str, ...], noun: str, limit: int) -> bytes:
    """Return the body, whose media type must begin with one of `types`."""
    if not call.request.headers.get("content-type", "").startswith(types):
        # a page of another origin can send some other types without asking the browser first
        message = f"send the {noun}, with the header `Content-Type: {types[0]}...`"
        raise ApiError(415, "unsupported_media_type", message)
    return await read_body(call, limit)


def _no_bucket(noun: str) -> ApiError:
    return ApiError(501, "no_bucket", f"this gateway has no bucket: send the {noun} with the job")


def _may_read(call: Call, address: str) -> bool:
    """Return whether to show the object: within the allowed buckets, or within the own one if none is named."""
    config = call.gateway.client.config
    try:
        found = parse_object(address)
    except ValueError:
        return False
    if not config.allowed_buckets:
        return found.bucket == config.bucket
    return config.allowed.permits(found.path, call.key.tenant)
