"""Signed jobs: on a Redis that many can write to, workers run only jobs that were signed with a known key.

The signature is the last member of the job's JSON, written exactly as `,"signature":"<key id>:<64 hex digits>"}`. It is
the HMAC-SHA256 of the job's bytes without it: cut these characters, put the `}` back, and those are the signed bytes. A
reader can therefore verify the bytes before it parses or re-encodes anything.
"""

import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from stoop_schemas.failure import FailureCode, Rejected

__all__ = ["KEY_PATTERN", "SIGNATURE_PATTERN", "SigningKeys"]

KEY_PATTERN: Final = r"[A-Za-z0-9._-]{1,64}"
"""The name of a key; it is not a secret."""

SIGNATURE_PATTERN: Final = KEY_PATTERN + r":[0-9a-f]{64}"
"""The field `signature` of a job."""

_SECRET_BYTES: Final = 16
_MEMBER: Final = re.compile(rf',"signature":"({KEY_PATTERN}):([0-9a-f]{{64}})"\}}\Z'.encode())
# the longest member: searching only this tail costs the same for a job of any size
_MEMBER_BYTES: Final = len(',"signature":":"}') + 64 + 64


@dataclass(frozen=True, slots=True)
class SigningKeys:
    """The secrets by their key ids, in order: the first one signs, and each one verifies."""

    secrets: Mapping[str, bytes] = field(repr=False)

    @classmethod
    def read(cls, entries: Iterable[str]) -> "SigningKeys | None":
        """Parse `keyid:secret` entries, or return None if there are none.

        Raises `ValueError`, without repeating a secret, for a malformed entry, a repeated key id, or a secret of fewer
        than 16 bytes.
        """
        secrets: dict[str, bytes] = {}
        for entry in entries:
            name, colon, secret = entry.partition(":")
            if not colon or not re.fullmatch(KEY_PATTERN, name):
                raise ValueError("each entry must be keyid:secret, the key id of A-Z a-z 0-9 . _ - (at most 64)")
            if name in secrets:
                raise ValueError(f"the key id {name} appears twice")
            if len(secret.encode()) < _SECRET_BYTES:
                raise ValueError(f"the secret of {name} is too short: take {_SECRET_BYTES} random bytes or more")
            secrets[name] = secret.encode()
        return cls(secrets) if secrets else None

    def sign(self, packed: bytes) -> bytes:
        """Return the packed job with its signature by the first key."""
        name, secret = next(iter(self.secrets.items()))
        return packed[:-1] + f',"signature":"{name}:{_digest(secret, packed)}"}}'.encode()

    def verify(self, packed: bytes) -> None:
        """Raise `Rejected` (malformed) unless one of these keys signed exactly these bytes."""
        found = _MEMBER.search(packed, max(0, len(packed) - _MEMBER_BYTES))
        if not found:
            raise Rejected(
                FailureCode.MALFORMED, "the job is not signed: this worker runs only jobs signed with one of its keys"
            )
        secret = self.secrets.get(found[1].decode())
        # an unknown key takes the same time as a wrong signature, and gets the same message
        wanted = _digest(secret or b"", packed[: found.start()] + b"}")
        if not hmac.compare_digest(wanted, found[2].decode()) or secret is None:
            raise Rejected(
                FailureCode.MALFORMED, "the job's signature is wrong, or made with a key that this worker lacks"
            )


def _digest(secret: bytes, signed: bytes) -> str:
    return hmac.new(secret, signed, hashlib.sha256).hexdigest()
