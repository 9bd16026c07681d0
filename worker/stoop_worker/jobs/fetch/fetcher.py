"""Reads image addresses: objects of an S3 store, inline images and, if allowed, images on web servers.

The event loop reads ordinary objects itself. boto3 reads the others; it blocks, so its calls run on the fetcher's own
threads. The event loop enforces the time limit of both.
"""

import asyncio
import contextlib
import io
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

import boto3
import botocore.session
import urllib3
from botocore import exceptions as aws
from botocore.client import Config as BotoConfig

from stoop_schemas.allowed import AllowedBuckets
from stoop_schemas.store_errors import UNKNOWN_CALLER
from stoop_worker.errors import (
    ConfigError,
    ImageAddressInvalid,
    ImageError,
    ImageForbidden,
    ImageNotFound,
    ImageTimeout,
    ImageTooLarge,
    StorageUnavailable,
)
from stoop_worker.jobs.budget import Budget
from stoop_worker.jobs.fetch.address import ObjectAddress, is_inline, parse_object, unpack_inline
from stoop_worker.jobs.fetch.direct import DirectStore
from stoop_worker.jobs.fetch.https import HttpsFetcher

if TYPE_CHECKING:
    from botocore.response import StreamingBody
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import GetObjectRequestTypeDef

__all__ = ["FetchConfig", "Fetcher", "connect_store"]

_Value = TypeVar("_Value")

_ALL = AllowedBuckets()
_PIECE_BYTES = 4 << 20  # most photos come in one piece, which needs no copy
_USER_AGENT = "stoop"  # set here, because botocore otherwise builds one for every GET
_ATTEMPTS = 2  # of the store's client, on top of the job's own attempts


@dataclass(frozen=True, slots=True)
class FetchConfig:
    """The object store and the limits on one image. Times are in seconds; `timeout` bounds one image in total.

    If `endpoint` or `region` is None, the AWS variables decide. An empty `allowed` allows every bucket that the
    worker's credentials open.
    """

    endpoint: str | None = None
    region: str | None = None
    path_style: bool = False
    max_bytes: int = 32 << 20
    timeout: float = 20.0
    connect_timeout: float = 3.0
    read_timeout: float = 10.0
    allowed: AllowedBuckets = _ALL
    concurrency: int = 16


class Fetcher:
    """Fetches images, `concurrency` at once; an asynchronous context manager that ends its connections and threads.

    It reserves half of them for the first priority. Without `https` it refuses images on web servers.
    """

    def __init__(self, config: FetchConfig, *, https: HttpsFetcher | None = None) -> None:
        self._config = config
        self._https = https
        core = _core()
        self._client = connect_store(config, core)
        self._direct = _direct(config, self._client, core)
        self._pool = ThreadPoolExecutor(config.concurrency, "fetch")
        # so that an image's time limit starts with its fetch, not when it joins the pool's queue
        self._permits = Budget(config.concurrency, reserved=_reserved(config.concurrency))

    async def fetch(self, image_uri: str, tenant: str | None = None, priority: int = 0) -> bytes:
        """Return the encoded image for a job of this tenant; raises an `ImageError` with the reason if that fails.

        A key in an `s3://` address is used literally, without percent-decoding.
        """
        if self._https and image_uri.startswith("https://"):
            with await self._permits.borrow(1, priority):
                return await self._https.fetch(image_uri)
        if is_inline(image_uri):
            # not on a thread that may be busy with a download
            return await asyncio.to_thread(unpack_inline, image_uri, self._config.max_bytes)
        address = parse_object(image_uri)
        if not self._config.allowed.permits(address.path, tenant):
            raise ImageForbidden(f"this worker does not read {address}: its bucket or prefix is not allowed")
        with await self._permits.borrow(1, priority):
            return await self._download(address)

    async def _download(self, address: ObjectAddress) -> bytes:
        download = _Download(self._client, address, self._config.max_bytes)
        try:
            async with asyncio.timeout(self._config.timeout):
                found = await self._direct.get(address, self._config.max_bytes)
                return await self._on_thread(download.run) if found is None else found
        except TimeoutError:
            raise ImageTimeout(f"{address} did not arrive in {self._config.timeout:g} s") from None
        finally:
            download.abort()  # no effect after a success; after a timeout the thread must not linger

    async def _on_thread(self, work: Callable[[], _Value]) -> _Value:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    async def close(self) -> None:
        """Release the connections and threads, without waiting for a thread that still reads; idempotent."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._client.close()
        await self._direct.close()

    async def __aenter__(self) -> "Fetcher":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class _Download:
    """The download of one object: `run` reads it on a thread, `abort` ends that from the event loop."""

    def __init__(self, client: "S3Client", address: ObjectAddress, max_bytes: int) -> None:
        self._client = client
        self._address = address
        self._max_bytes = max_bytes
        self._body: StreamingBody | None = None  # written by the thread
        self._aborted = False  # written by the event loop

    def run(self) -> bytes:
        try:
            return self._read()
        except (aws.BotoCoreError, aws.ClientError, urllib3.exceptions.HTTPError, OSError) as error:
            raise _explain(error, self._address) from error

    def abort(self) -> None:
        self._aborted = True
        if body := self._body:
            # a body that drips never reaches its own timeout; from now on its next byte does
            with contextlib.suppress(AttributeError, OSError, ValueError):
                body.set_socket_timeout(0.001)

    def _read(self) -> bytes:
        self._check_wanted()
        wanted: GetObjectRequestTypeDef = {"Bucket": self._address.bucket, "Key": self._address.key}
        if self._address.version:
            wanted["VersionId"] = self._address.version
        got = self._client.get_object(**wanted)
        with contextlib.closing(got["Body"]) as body:
            size = got.get("ContentLength", 0)
            self._check_size(size)
            self._body = body
            try:
                return self._collect(body, size)
            finally:
                self._body = None

    def _collect(self, body: "StreamingBody", size: int) -> bytes:
        collected = io.BytesIO()  # `getvalue` returns its bytes without a copy
        self._check_wanted()
        while piece := body.read(_PIECE_BYTES):
            if len(piece) == size:
                return piece
            collected.write(piece)
            self._check_size(collected.tell())
            self._check_wanted()
        return collected.getvalue()

    def _check_wanted(self) -> None:
        if self._aborted:
            raise ImageTimeout(f"{self._address} was given up")

    def _check_size(self, size: int) -> None:
        if size > self._max_bytes:
            raise ImageTooLarge(f"{self._address} has {size} bytes or more: at most {self._max_bytes}")


def _reserved(concurrency: int) -> int:
    """Return the number of downloads reserved for the first priority."""
    return min(concurrency - 1, max(1, concurrency // 2))


def _core() -> botocore.session.Session:
    """Return a session with the credentials that the AWS variables, files or roles give."""
    core = botocore.session.Session()
    # the date of an object is never read, and parsing it takes a tenth of a GET
    core.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=str)
    return core


def _direct(config: FetchConfig, client: "S3Client", core: botocore.session.Session) -> DirectStore:
    authorities = core.get_config_variable("ca_bundle") or os.environ.get("REQUESTS_CA_BUNDLE")
    return DirectStore(
        client,
        core.get_credentials(),
        authorities=authorities,
        connections=config.concurrency,
        connect_timeout=config.connect_timeout,
        read_timeout=config.read_timeout,
    )


def connect_store(config: FetchConfig, core: botocore.session.Session | None = None) -> "S3Client":
    """Return a client of the object store that threads may share; raises `ConfigError`."""
    try:
        return boto3.session.Session(botocore_session=core or _core()).client(
            "s3",
            endpoint_url=config.endpoint,
            region_name=config.region or os.environ.get("AWS_REGION"),
            config=BotoConfig(
                signature_version="s3v4",
                s3={"addressing_style": "path" if config.path_style else "auto"},
                connect_timeout=config.connect_timeout,
                read_timeout=config.read_timeout,
                retries={"mode": "standard", "total_max_attempts": _ATTEMPTS},
                max_pool_connections=config.concurrency,
                user_agent=_USER_AGENT,
                # not every server other than AWS knows the newer checksum headers
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
            ),
        )
    except (aws.BotoCoreError, ValueError) as error:
        # the error's own text repeats the endpoint, which may contain credentials
        kind = type(error).__name__
        problem = f"the object store cannot be addressed ({kind}): check STOOP_S3_ENDPOINT and STOOP_S3_REGION"
        raise ConfigError(problem) from error


def _explain(error: Exception, address: ObjectAddress) -> ImageError:
    """Turn a store's error into one with our own text, because its own may quote addresses and headers."""
    if isinstance(error, aws.ClientError):
        return _explain_refusal(error, address)
    if isinstance(error, aws.ParamValidationError):
        return ImageAddressInvalid(f"{address} is not a valid address of an object")
    if isinstance(error, aws.ConnectTimeoutError | aws.ReadTimeoutError | TimeoutError):
        return ImageTimeout(f"the object store took too long to give {address}")
    if isinstance(error, aws.NoCredentialsError | aws.PartialCredentialsError):
        return StorageUnavailable(
            "this worker has no credentials for the object store: set AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY, or give it a role"
        )
    if isinstance(error, aws.IncompleteReadError | aws.ResponseStreamingError):
        return StorageUnavailable(f"the object store closed the connection in the middle of {address}")
    return StorageUnavailable(f"the object store does not answer ({type(error).__name__}): check its endpoint")


def _explain_refusal(error: aws.ClientError, address: ObjectAddress) -> ImageError:
    status_code = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    code = error.response.get("Error", {}).get("Code", "")
    if code in UNKNOWN_CALLER:  # another attempt, on another worker, may succeed
        return StorageUnavailable(f"the object store refuses this worker's credentials, clock or region ({code})")
    if status_code in (404, 405, 410):  # 405: the version is a delete marker
        if code == "NoSuchBucket":
            return ImageNotFound(f"there is no bucket {address.bucket!r} for {address}")
        return ImageNotFound(f"there is no object at {address}")
    if code == "InvalidObjectState":
        return ImageForbidden(f"{address} is archived: restore it, or put it into another storage class")
    if status_code in (401, 403):
        return ImageForbidden(
            f"the object store does not let this worker read {address} ({code}): give it the rights s3:GetObject and "
            "s3:ListBucket; without s3:ListBucket, a missing object is refused too"
        )
    if status_code == 408 or code == "RequestTimeout":
        return ImageTimeout(f"the object store took too long to give {address}")
    if status_code == 400:
        return ImageAddressInvalid(f"the object store cannot read the address {address} ({code})")
    return StorageUnavailable(f"the object store answered {status_code} ({code}) for {address}")
