"""Reads ordinary objects of an S3 store on the event loop; everything unusual is left to boto3.

A GET by boto3 takes a thread and three times the CPU time. Most of it goes to its model of the whole API, and to the
interpreter that the threads hand to each other.
"""

import ssl
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs, quote, urlsplit

import aiohttp
from botocore import exceptions as aws
from botocore.credentials import Credentials, ReadOnlyCredentials, RefreshableCredentials
from botocore.httpsession import get_cert_path
from botocore.utils import get_environ_proxies
from yarl import URL

from stoop_schemas.address import ObjectAddress
from stoop_worker.jobs.fetch.signature import signed_headers

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

__all__ = ["DirectStore"]

_ALGORITHM: Final = "AWS4-HMAC-SHA256"
_KEY: Final = "key"
_HEADERS: Final = {"User-Agent": "stoop"}
_USUAL_PORTS: Final = {"http": ":80", "https": ":443"}  # which no client names in its Host header
_SKIPPED: Final = ("Accept", "Accept-Encoding")
_BUFFER_BYTES: Final = 4 << 20  # most photos are read without a pause
_REGION: Final = "x-amz-bucket-region"
_MOST_BYTES: Final = 16 << 20  # of an object, because the event loop joins its pieces
_MOST_BUCKETS: Final = 1000  # jobs name them
_EXPRESS: Final = "-x-s3"  # the end of the names of buckets with signatures of another kind


class DirectStore:
    """An S3 store, read by aiohttp; it belongs to one event loop.

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
        self._authorities = authorities
        self._connections = connections
        self._timeout = aiohttp.ClientTimeout(total=None, sock_connect=connect_timeout, sock_read=read_timeout)
        self._buckets: dict[str, _Bucket | None] = {}  # None: left to boto3
        self._http: aiohttp.ClientSession | None = None

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
        headers = signed_headers(bucket.host, path, query, region=bucket.region, credentials=credentials)
        url = URL(f"{bucket.origin}{path}{'?' if query else ''}{query}", encoded=True)
        try:
            async with self._connected().get(url, headers=headers, allow_redirects=False) as response:
                if response.status == 200:
                    size = response.content_length
                    plain = size is not None and size <= min(max_bytes, _MOST_BYTES)
                    return await response.read() if plain else None
                if response.status < 400 or (response.status == 400 and _REGION in response.headers):
                    self._buckets[address.bucket] = None  # it is elsewhere, and boto3 remembers where
                return None
        except (aiohttp.ClientError, TimeoutError, OSError):
            return None

    async def close(self) -> None:
        """Close the connections; idempotent."""
        if self._http is not None:
            await self._http.close()

    def _connected(self) -> aiohttp.ClientSession:
        if self._http is None:
            self._http = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=self._connections, ssl=_trust(self._authorities)),
                headers=_HEADERS,
                timeout=self._timeout,
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
                skip_auto_headers=_SKIPPED,
                read_bufsize=_BUFFER_BYTES,
            )
        return self._http

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
        return None if bucket is None or get_environ_proxies(bucket.origin) else bucket


@dataclass(frozen=True, slots=True)
class _Bucket:
    """The address of a bucket: its paths end in the key. `region` is that of its signatures."""

    origin: str
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
        host = parts.netloc.removesuffix(_USUAL_PORTS.get(parts.scheme, ""))
        return cls(f"{parts.scheme}://{host}", host, parts.path.removesuffix(_KEY), region)

    def target(self, address: ObjectAddress) -> tuple[str, str]:
        """Return the path and the query of an object, percent-encoded."""
        version = f"versionId={quote(address.version, safe='')}" if address.version else ""
        return f"{self.path}{quote(address.key, safe='/~')}", version


@cache
def _trust(authorities: str | None) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=authorities or get_cert_path(True))


def _is_plain(key: str) -> bool:
    """Return whether no server or library may resolve the steps of a key to another one."""
    return not any(step in ("", ".", "..") for step in key.split("/"))
