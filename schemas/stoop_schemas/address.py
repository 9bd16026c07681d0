"""The address of an image or a recording in an object store: one syntax for every writer and reader."""

import re
from dataclasses import dataclass
from typing import Final

__all__ = ["OBJECT_PATTERN", "ObjectAddress", "is_object", "object_address", "parse_object"]

OBJECT_PATTERN: Final = r"s3://[^/]+/[\s\S]"
"""The beginning of every address that names a bucket and a key: for Python and for JSON Schema."""

# no `:`, because a name with one could be an access point of another account
_OBJECT: Final = re.compile(
    r"s3://(?P<bucket>[A-Za-z0-9._-]{3,63})/(?P<key>.+?)(?:\?versionId=(?P<version>[^?&/#]+))?", re.S
)
_KEY_BYTES: Final = 1024  # S3's own limit


@dataclass(frozen=True, slots=True)
class ObjectAddress:
    """One object, or one version of it. The key is never percent-decoded."""

    bucket: str
    key: str
    version: str | None = None

    def __str__(self) -> str:
        # keep a signed query out of messages, if someone pasted one into the address
        return f"s3://{self.bucket}/{self.key.split('?')[0][:200]}"

    @property
    def path(self) -> str:
        """The bucket and the key, in the form that allowed buckets use."""
        return f"{self.bucket}/{self.key}"


def is_object(address: str) -> bool:
    """Return whether the address has the form of an object's; `parse_object` checks its bucket and key."""
    return re.match(OBJECT_PATTERN, address) is not None


def object_address(bucket: str, key: str) -> str:
    """Write the address of an object; raises `ValueError` for a key that no address can name."""
    address = f"s3://{bucket}/{key}"
    if parse_object(address).version is not None:
        raise ValueError(
            "the key ends in ?versionId=..., which an address reads as a version: copy the object to another key"
        )
    return address


def parse_object(address: str) -> ObjectAddress:
    """Parse `s3://bucket/key` with an optional `?versionId=...` at the end; all other text belongs to the key.

    Raises `ValueError` for any other address; the message repeats no more of it than the bucket and the key.
    """
    if not (match := _OBJECT.fullmatch(address)):
        raise ValueError("the address must be s3://bucket/key, or data:image/<format>;base64,<bytes>")
    found = ObjectAddress(match["bucket"], match["key"], match["version"])
    if any(step in (".", "..") for step in found.key.split("/")):
        # some stores resolve them, which could escape an allowed prefix
        raise ValueError(f"the key of {found} has a segment `.` or `..`")
    try:
        length = len(found.key.encode())
    except UnicodeEncodeError:
        raise ValueError("the key is not valid Unicode") from None
    if length > _KEY_BYTES:
        raise ValueError(f"the key has {length} bytes: at most {_KEY_BYTES}")
    return found
