"""The image of an HTTP request: raw base64, a `data:` address, or the address of an object."""

import asyncio
import binascii
from typing import Final

from stoop.gateway.errors import ApiError
from stoop_schemas.failure import FailureCode
from stoop_schemas.job import IMAGE_LIMIT

__all__ = ["image_of"]

_ADDRESSES: Final = ("s3://", "https://")
_ASSUMED: Final = "data:image/jpeg;base64,"
"""The media type means nothing to a worker, which looks at the bytes."""


async def image_of(given: str | None, param: str = "image_url") -> str | bytes | None:
    """Return an address, or the bytes of an image too large for one. Raises an `ApiError` (400)."""
    if not given or given.startswith(_ADDRESSES):
        return given or None
    if given.startswith("data:"):
        head, comma, encoded = given.partition(",")
        if not comma or not head.startswith("data:image/") or not head.endswith(";base64"):
            raise _undecodable("a data address must be data:image/<format>;base64,<bytes>", param)
        address = given
    else:
        encoded = "".join(given.split())
        address = _ASSUMED + encoded
    image = await _decoded(encoded, param)
    return image if len(address) > IMAGE_LIMIT else address


async def _decoded(encoded: str, param: str) -> bytes:
    try:
        # on the loop it would delay every other caller for some milliseconds per megabyte
        if len(encoded) > IMAGE_LIMIT:
            return await asyncio.to_thread(binascii.a2b_base64, encoded, strict_mode=True)
        return binascii.a2b_base64(encoded, strict_mode=True)
    except ValueError:
        raise _undecodable("the image is neither an address (s3://, https://, data:) nor base64", param) from None


def _undecodable(message: str, param: str) -> ApiError:
    return ApiError(400, FailureCode.IMAGE_UNDECODABLE, message, param=param)
