"""The meaning of the object store's error codes that producers and workers both know."""

from typing import Final

__all__ = ["UNKNOWN_CALLER"]

UNKNOWN_CALLER: Final = frozenset(
    {
        "AuthorizationHeaderMalformed",
        "ExpiredToken",
        "InvalidAccessKeyId",
        "InvalidToken",
        "RequestTimeTooSkewed",
        "SignatureDoesNotMatch",
    }
)
"""The store rejects the caller, because of the credentials or the clock; the object may be fine."""
