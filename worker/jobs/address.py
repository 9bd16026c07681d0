"""What an image address says: an object in a bucket, or the image itself."""

import base64
import binascii
import re
from dataclasses import dataclass

from worker.errors import ImageAddressInvalid, ImageTooLarge

__all__ = ["ObjectAddress", "is_inline", "parse_object", "unpack_inline"]

# no `:`, so that nobody can name an access point of another account where a bucket belongs
_OBJECT = re.compile(r"s3://(?P<bucket>[A-Za-z0-9._-]{3,63})/(?P<key>.+?)(?:\?versionId=(?P<version>[^?&/#]+))?", re.S)
_INLINE = re.compile(r"data:image/[a-z0-9.+-]+;base64,", re.I)
_KEY_BYTES = 1024  # S3's own limit


@dataclass(frozen=True, slots=True)
class ObjectAddress:
    """One object, or one version of it. The key is as it was given: never percent-decoded."""

    bucket: str
    key: str
    version: str | None = None

    def __str__(self) -> str:
        # a signed query that was pasted into an address stays out of messages
        return f"s3://{self.bucket}/{self.key.split('?')[0][:200]}"

    @property
    def path(self) -> str:
        """The bucket and the key, as entries of allowed buckets name them."""
        return f"{self.bucket}/{self.key}"


def parse_object(address: str) -> ObjectAddress:
    """Read `s3://bucket/key`, with `?versionId=...` at its end or not; all other text of the key is the key's own.

    Raises `ImageAddressInvalid` for every other address, saying which ones are read.
    """
    if address.lower().startswith(("https://", "http://")):
        raise ImageAddressInvalid("https images are not enabled on this worker: put the image into the object store")
    if not (match := _OBJECT.fullmatch(address)):
        raise ImageAddressInvalid("the image address must be s3://bucket/key or data:image/<format>;base64,<bytes>")
    found = ObjectAddress(match["bucket"], match["key"], match["version"])
    if any(step in (".", "..") for step in found.key.split("/")):
        # some stores would resolve them, and so leave an allowed prefix
        raise ImageAddressInvalid(f"the key of {found} has a step `.` or `..`")
    try:
        length = len(found.key.encode())
    except UnicodeEncodeError:
        raise ImageAddressInvalid("the key of the image is not valid Unicode") from None
    if length > _KEY_BYTES:
        raise ImageAddressInvalid(f"the key of the image has {length} bytes: at most {_KEY_BYTES}")
    return found


def is_inline(address: str) -> bool:
    """Say whether the address is the image itself."""
    return address[:5].lower() == "data:"


def unpack_inline(address: str, max_bytes: int) -> bytes:
    """Return the bytes of `data:image/<format>;base64,<bytes>`; the format named is not believed, nor checked here.

    Raises `ImageAddressInvalid`, or `ImageTooLarge` before anything is unpacked.
    """
    if not (match := _INLINE.match(address)):
        raise ImageAddressInvalid("an image given as text must be data:image/<format>;base64,<bytes>")
    encoded = address[match.end() :]
    size = len(encoded) * 3 // 4 - encoded[-2:].count("=")
    if size > max_bytes:
        raise ImageTooLarge(f"the image has {size} bytes: at most {max_bytes}")
    if encoded.endswith("==="):  # which the standard library lets pass
        raise ImageAddressInvalid("the image's base64 is damaged: too much padding")
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ImageAddressInvalid(f"the image's base64 is damaged: {error}") from None
