"""Signs GETs of an S3 store: AWS Signature Version 4 for requests without a body, parameters or headers of their own.

botocore's signer takes 0.1 to 0.2 ms of the event loop for each, because it treats every kind of request.
"""

import hmac
from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256
from time import gmtime, strftime
from typing import Final

from botocore.credentials import ReadOnlyCredentials

__all__ = ["signed_headers"]

_ALGORITHM: Final = "AWS4-HMAC-SHA256"
_NO_BODY: Final = sha256().hexdigest()


def signed_headers(
    host: str, path: str, query: str, *, region: str, credentials: ReadOnlyCredentials, now: float | None = None
) -> Mapping[str, str]:
    """Return the headers of a signed GET, except for Host. `path` and `query` are percent-encoded.

    `query` is one parameter at most, because several would have to be sorted. `now` is a Unix time.
    """
    date = strftime("%Y%m%dT%H%M%SZ", gmtime(now))
    headers = {"X-Amz-Content-SHA256": _NO_BODY, "X-Amz-Date": date}
    if credentials.token:
        headers["X-Amz-Security-Token"] = credentials.token
    lines = "".join(f"{name.lower()}:{value}\n" for name, value in headers.items())
    names = ";".join(("host", *map(str.lower, headers)))
    request = f"GET\n{path}\n{query}\nhost:{host}\n{lines}\n{names}\n{_NO_BODY}"
    scope = f"{date[:8]}/{region}/s3/aws4_request"
    text = f"{_ALGORITHM}\n{date}\n{scope}\n{sha256(request.encode()).hexdigest()}"
    signature = hmac.digest(_key(credentials.secret_key, scope), text.encode(), "sha256").hex()
    headers["Authorization"] = (
        f"{_ALGORITHM} Credential={credentials.access_key}/{scope}, SignedHeaders={names}, Signature={signature}"
    )
    return headers


@lru_cache(maxsize=8)
def _key(secret: str, scope: str) -> bytes:
    """Return the key for the requests of one day to one region."""
    key = f"AWS4{secret}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key
