"""Parses the addresses of objects in a bucket, and of files that the address itself contains."""

import base64
import binascii
import re

import stoop_schemas.address
from stoop_schemas.address import ObjectAddress
from stoop_worker.errors import ImageAddressInvalid, ImageTooLarge

__all__ = ["ObjectAddress", "is_inline", "parse_object", "unpack_inline"]

_INLINE = re.compile(r"data:(?:image|audio|video)/[a-z0-9.+-]+;base64,", re.I)


def parse_object(address: str) -> ObjectAddress:
    """Parse `s3://bucket/key[?versionId=...]` by the contract's rule.

    Raises `ImageAddressInvalid` for every other address; the message names the accepted ones.
    """
    if address.lower().startswith(("https://", "http://")):
        raise ImageAddressInvalid("https addresses are not enabled on this worker: put the file into the object store")
    try:
        return stoop_schemas.address.parse_object(address)
    except ValueError as error:
        raise ImageAddressInvalid(str(error)) from None


def is_inline(address: str) -> bool:
    """Return whether the address contains the file itself."""
    return address[:5].lower() == "data:"


def unpack_inline(address: str, max_bytes: int) -> bytes:
    """Return the bytes of `data:<type>/<format>;base64,<bytes>`; the named format is neither trusted nor checked here.

    Raises `ImageAddressInvalid`, or `ImageTooLarge` before it decodes anything.
    """
    if not (match := _INLINE.match(address)):
        raise ImageAddressInvalid(
            "a file given as text must be data:image/<format>;base64,<bytes>, or data:audio/... for audio"
        )
    encoded = address[match.end() :]
    size = len(encoded) * 3 // 4 - encoded[-2:].count("=")
    if size > max_bytes:
        raise ImageTooLarge(f"the file has {size} bytes: at most {max_bytes}")
    if encoded.endswith("==="):  # the standard library accepts this
        raise ImageAddressInvalid("the file's base64 is damaged: too much padding")
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ImageAddressInvalid(f"the file's base64 is damaged: {error}") from None
