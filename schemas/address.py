"""The address of an image in an object store: one rule for all who write one or read one."""

import re
from dataclasses import dataclass
from typing import Final

__all__ = ["OBJECT_PATTERN", "ObjectAddress", "is_object", "parse_object"]

OBJECT_PATTERN: Final = r"s3://[^/]+/[\s\S]"
"""How an address begins that names a bucket and a key, whatever they are: for Python and for JSON Schema."""

# no `:`, so that nobody can name an access point of another account where a bucket belongs
_OBJECT: Final = re.compile(
    r"s3://(?P<bucket>[A-Za-z0-9._-]{3,63})/(?P<key>.+?)(?:\?versionId=(?P<version>[^?&/#]+))?", re.S
)
_KEY_BYTES: Final = 1024  # S3's own limit


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


def is_object(address: str) -> bool:
    """Say whether the address names a bucket and a key; which of them it may name is for `parse_object` to say."""
    return re.match(OBJECT_PATTERN, address) is not None


def parse_object(address: str) -> ObjectAddress:
    """Read `s3://bucket/key`, with `?versionId=...` at its end or not; all other text of the key is the key's own.

    Raises `ValueError` for every other address, saying what is wrong without repeating more than bucket and key.
    """
    if not (match := _OBJECT.fullmatch(address)):
        raise ValueError("the image address must be s3://bucket/key or data:image/<format>;base64,<bytes>")
    found = ObjectAddress(match["bucket"], match["key"], match["version"])
    if any(step in (".", "..") for step in found.key.split("/")):
        # some stores would resolve them, and so leave an allowed prefix
        raise ValueError(f"the key of {found} has a step `.` or `..`")
    try:
        length = len(found.key.encode())
    except UnicodeEncodeError:
        raise ValueError("the key of the image is not valid Unicode") from None
    if length > _KEY_BYTES:
        raise ValueError(f"the key of the image has {length} bytes: at most {_KEY_BYTES}")
    return found
