"""Signatures of webhooks, in the form of the Standard Webhooks specification: HMAC-SHA256 of id, timestamp and body.

The receiver needs this file alone.
"""

import base64
import binascii
import hmac
import time
from collections.abc import Mapping

__all__ = ["Forged", "sign", "verify"]

PREFIX = "whsec_"
TOLERANCE_SECONDS = 300


class Forged(Exception):
    """The sender does not know the secret, or the request is an old one sent again."""


def sign(secret: str, message_id: str, body: bytes, now: float | None = None) -> dict[str, str]:
    """Return the headers that go with a body; `secret` is `whsec_` and 24 to 64 random bytes in base64.

    Raises `ValueError` if it is not.
    """
    timestamp = str(int(time.time() if now is None else now))
    signature = base64.b64encode(_digest(secret, message_id, timestamp, body)).decode()
    return {"webhook-id": message_id, "webhook-timestamp": timestamp, "webhook-signature": f"v1,{signature}"}


def verify(secret: str, headers: Mapping[str, str], body: bytes, now: float | None = None) -> str:
    """Return the message's id if its signature is right and not older than five minutes; raise `Forged` if not.

    `headers` are looked up in lower case; `body` must be the bytes as they came, before any JSON is read.
    """
    message_id, timestamp = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    if (
        not timestamp.isdecimal()
        or len(timestamp) > 12
        or abs((time.time() if now is None else now) - int(timestamp)) > TOLERANCE_SECONDS
    ):
        raise Forged("no timestamp of the last five minutes")
    expected = _digest(secret, message_id, timestamp, body)
    # while a secret is replaced there may be several
    for signature in headers.get("webhook-signature", "").split(" "):
        version, _, encoded = signature.partition(",")
        if version == "v1" and hmac.compare_digest(_decoded(encoded), expected):
            return message_id
    raise Forged("no signature that fits")


def _digest(secret: str, message_id: str, timestamp: str, body: bytes) -> bytes:
    key = _decoded(secret.removeprefix(PREFIX))
    if not 24 <= len(key) <= 64:
        raise ValueError(f"the secret must be {PREFIX} and 24 to 64 random bytes in base64")
    return hmac.digest(key, f"{message_id}.{timestamp}.".encode() + body, "sha256")


def _decoded(encoded: str) -> bytes:
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        return b""
