"""Reads ordinary objects of an S3 store on the event loop; everything unusual is left to boto3.

A GET by boto3 takes a thread and three times the CPU time. Most of it goes to its model of the whole API, and to the
interpreter that the threads hand to each other.
"""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs, quote, urlsplit

from botocore import exceptions as aws
from botocore.credentials import Credentials, ReadOnlyCredentials, RefreshableCredentials
from botocore.httpsession import get_cert_path
from botocore.utils import get_environ_proxies

from stoop_schemas.address import ObjectAddress
from stoop_worker.jobs.fetch.http import HttpConnections, Origin
from stoop_worker.jobs.fetch.signature import signed_headers

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

__all__ = ["DirectStore"]

_ALGORITHM: Final = "AWS4-HMAC-SHA256"
_KEY: Final = "key"
_HEADERS: Final = {"User-Agent": "stoop"}
_USUAL_PORTS: Final = {"http": 80, "https": 443}  # which no client names in its Host header
_REGION: Final = b"x-amz-bucket-region"
_MOST_BYTES: Final = 16 << 20  # of an object, because the event loop joins its pieces
_MOST_BUCKETS: Final = 1000  # jobs name them
_EXPRESS: Final = "-x-s3"  # the end of the names of buckets with signatures of another kind


class DirectStore:
    """An S3 store; it belongs to one event loop.

    `client` chooses the endpoint and the region of each bucket. `authorities` is a file of certificates; None
    stands for botocore's own. Times are in seconds. Nothing is read directly without `credentials`, or through a proxy.
    """

    def __init__(
        self,
        client: "S3Client",
        credentials: Credentials | None,
        *,
        authorities: str | None,
        connections: int,
        connect_timeout: float,
        read_timeout: float,
    ) -> None:
        self._client = client
        self._credentials = credentials
        self._buckets: dict[str, _Bucket | None] = {}  # None: left to boto3
        self._http = HttpConnections(
            lambda: _trust(authorities),
            most_idle=connections,
            connect_timeout=connect_timeout,
            read_timeout=read_timeout,
        )

    async def get(self, address: ObjectAddress, max_bytes: int) -> bytes | None:
        """Return the object, or None if boto3 must read it, or explain why it cannot be read.

        An object of more than `max_bytes`, or of more than 16 MB, is not read.
        """
        credentials = self._frozen_credentials()
        if credentials is None or not _is_plain(address.key):
            return None
        bucket = self._bucket(address.bucket)
        if bucket is None:
            return None
        path, query = bucket.target(address)
        signed = signed_headers(bucket.host, path, query, region=bucket.region, credentials=credentials)
        try:
            head = _head(f"{path}{'?' if query else ''}{query}", {"Host": bucket.host, **_HEADERS, **signed})
            answer = await self._http.get(bucket.origin, head, min(max_bytes, _MOST_BYTES))
        except (OSError, UnicodeError):  # some names of hosts cannot be encoded
            return None
        if answer.status != 200 and (answer.status < 400 or (answer.status == 400 and _REGION in answer.headers)):
            self._buckets[address.bucket] = None  # it is elsewhere, and boto3 remembers where
        return answer.body

    async def close(self) -> None:
        """Close the connections; idempotent."""
        await self._http.close()

    def _frozen_credentials(self) -> ReadOnlyCredentials | None:
        """Return the credentials; None if they must be refreshed first, which blocks: boto3 does it on a thread."""
        given = self._credentials
        if given is None or (isinstance(given, RefreshableCredentials) and given.refresh_needed()):
            return None
        return given.get_frozen_credentials()

    def _bucket(self, name: str) -> "_Bucket | None":
        if name not in self._buckets:
            if len(self._buckets) == _MOST_BUCKETS:
                self._buckets.clear()
            self._buckets[name] = self._find(name)
        return self._buckets[name]

    def _find(self, name: str) -> "_Bucket | None":
        if name.endswith(_EXPRESS):
            return None
        try:
            url = self._client.generate_presigned_url("get_object", Params={"Bucket": name, "Key": _KEY})
        except (aws.BotoCoreError, ValueError):
            return None
        bucket = _Bucket.of(url)
        return None if bucket is None or get_environ_proxies(bucket.url) else bucket


@dataclass(frozen=True, slots=True)
class _Bucket:
    """The address of a bucket: `url` is its server's, and its paths end in the key.

    `host` is the server's name in headers, and `region` that of signatures.
    """

    url: str
    origin: Origin
    host: str
    path: str
    region: str

    @classmethod
    def of(cls, presigned: str) -> "_Bucket | None":
        """Read it from a presigned URL of the object `_KEY`; None if it is signed in an unusual way."""
        parts = urlsplit(presigned)
        signed = {name: values[0] for name, values in parse_qs(parts.query).items()}
        _, _, region, signed_for, _ = f"{signed.get('X-Amz-Credential', '')}////".split("/", 4)
        if signed.get("X-Amz-Algorithm") != _ALGORITHM or signed_for != "s3" or not parts.path.endswith(f"/{_KEY}"):
            return None
        usual = _USUAL_PORTS.get(parts.scheme)
        if usual is None or parts.hostname is None or parts.username is not None:
            return None
        origin = Origin(parts.hostname, parts.port or usual, tls=parts.scheme == "https")
        host = parts.netloc.removesuffix(f":{usual}")
        return cls(f"{parts.scheme}://{host}", origin, host, parts.path.removesuffix(_KEY), region)

    def target(self, address: ObjectAddress) -> tuple[str, str]:
        """Return the path and the query of an object, percent-encoded."""
        version = f"versionId={quote(address.version, safe='')}" if address.version else ""
        return f"{self.path}{quote(address.key, safe='/~')}", version


def _head(target: str, headers: Mapping[str, str]) -> bytes:
    """Return a request; raises `UnicodeError` if a credential has characters that no header may have."""
    lines = [f"GET {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    if not all(map(str.isprintable, lines)):
        raise UnicodeError("a header has a line break")
    return "\r\n".join((*lines, "\r\n")).encode("ascii")


@cache
def _trust(authorities: str | None) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=authorities or get_cert_path(True))


def _is_plain(key: str) -> bool:
    """Return whether no server or library may resolve the steps of a key to another one."""
    return not any(step in ("", ".", "..") for step in key.split("/"))
