"""A GET of an object by botocore's signature and HTTP client, without the rest of its client's way, which costs more.

Only what goes well is of use here: whatever else comes is asked for again by the whole client, which knows the store's
errors, its redirects, and when to try once more.
"""

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

import urllib3
from botocore import exceptions as aws
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.httpsession import URLLib3Session
from botocore.response import StreamingBody
from botocore.utils import get_environ_proxies, percent_encode

if TYPE_CHECKING:
    from botocore.session import Session
    from mypy_boto3_s3 import S3Client

__all__ = ["USER_AGENT", "Body", "PlainGet"]

USER_AGENT = "stoop"
_MOST_BUCKETS = 1000  # that are remembered: their names come from jobs
_ELSEWHERE = (301, 307, 400)  # a bucket of another region, or one that wants another signature


@dataclass(frozen=True, slots=True)
class Body:
    """An object on its way, and its announced size; 0 if it is not known."""

    stream: StreamingBody
    size: int


@dataclass(frozen=True, slots=True)
class _Bucket:
    """Where a bucket's objects are, and the region they are signed for."""

    url: str
    region: str


class PlainGet:
    """GETs with the addresses and credentials of a client, over so many connections; may be used from any thread.

    `timeouts` are those to connect and to read, in seconds.
    """

    def __init__(
        self, client: "S3Client", session: "Session", *, timeouts: tuple[float, float], connections: int
    ) -> None:
        self._client = client
        self._credentials = session.get_credentials()
        # what the client would choose; the types know of less than there is
        verify: Any = session.get_config_variable("ca_bundle") or os.environ.get("REQUESTS_CA_BUNDLE", True)
        timeout: Any = timeouts
        proxies = get_environ_proxies(client.meta.endpoint_url)
        self._http = URLLib3Session(verify=verify, proxies=proxies, timeout=timeout, max_pool_connections=connections)
        self._buckets: dict[str, _Bucket | None] = {}

    def open(self, bucket: str, key: str) -> Body | None:
        """Ask for an object; None if the client is to ask."""
        try:
            if bucket not in self._buckets:
                self._remember(bucket, self._find(bucket))
            place = self._buckets.get(bucket)
            return None if place is None else self._ask(bucket, place, key)
        except (aws.BotoCoreError, urllib3.exceptions.HTTPError, OSError, ValueError):
            return None

    def close(self) -> None:
        """Let go of the connections; idempotent."""
        self._http.close()

    def _ask(self, name: str, bucket: _Bucket, key: str) -> Body | None:
        assert self._credentials is not None, "without them no bucket is found"
        url = bucket.url + percent_encode(key, safe="/~")
        request = AWSRequest(method="GET", url=url, headers={"User-Agent": USER_AGENT}, stream_output=True)
        S3SigV4Auth(self._credentials.get_frozen_credentials(), "s3", bucket.region).add_auth(request)
        response = self._http.send(request.prepare())
        if response.status_code == 200:
            size = int(response.headers.get("Content-Length", 0))
            return Body(StreamingBody(response.raw, size or None), size)  # type: ignore[arg-type]
        response.raw.close()
        if response.status_code in _ELSEWHERE:
            self._remember(name, None)
        return None

    def _find(self, name: str) -> _Bucket | None:
        """Ask the client where a bucket's objects are; None if they are not to be signed for as usual."""
        signed = urlsplit(self._client.generate_presigned_url("get_object", Params={"Bucket": name, "Key": "-"}))
        query = dict(parse_qsl(signed.query))
        scope = query.get("X-Amz-Credential", "").split("/")  # key, day, region, service, "aws4_request"
        if query.get("X-Amz-Algorithm") != "AWS4-HMAC-SHA256" or scope[3:] != ["s3", "aws4_request"]:
            return None
        return _Bucket(f"{signed.scheme}://{signed.netloc}{signed.path.removesuffix('-')}", region=scope[2])

    def _remember(self, name: str, bucket: _Bucket | None) -> None:
        if len(self._buckets) >= _MOST_BUCKETS:
            self._buckets.clear()
        self._buckets[name] = bucket
