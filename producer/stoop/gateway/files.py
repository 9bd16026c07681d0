"""Files of batches, in the object store: each tenant's in a folder of its own, so that no process holds any."""

import asyncio
import re
import secrets
import threading
import time
from collections.abc import Callable
from typing import IO, TYPE_CHECKING, Final, Literal, TypeVar

import msgspec

from stoop.config import ProducerConfig
from stoop.errors import UploadFailed
from stoop.gateway.errors import ApiError
from stoop.images.store import ABSENT, connect_store, refusal
from stoop_schemas.address import ObjectAddress

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

__all__ = ["FileObject", "ObjectFolder", "file_key", "new_name", "owner_folder"]

_T = TypeVar("_T")

_ROOT: Final = "batches/"
_NAME: Final = re.compile(r"(file|batch)-[0-9a-f]{24}")


class FileObject(msgspec.Struct, frozen=True, kw_only=True):
    """A stored file, in OpenAI's shape."""

    id: str
    bytes: int
    created_at: int
    filename: str
    purpose: str
    object: Literal["file"] = "file"
    status: Literal["processed"] = "processed"


def new_name(kind: Literal["file", "batch"]) -> str:
    """Return a new id."""
    return f"{kind}-{secrets.token_hex(12)}"


def owner_folder(tenant: str | None) -> str:
    """Return the folder of a tenant, or of the keys without one; the letter keeps a tenant called `..` in its place."""
    return f"{_ROOT}t-{tenant}/" if tenant is not None else f"{_ROOT}none/"


class ObjectFolder:
    """Objects and files of the configured bucket. boto3 blocks, so each call runs in a thread.

    Raises `UploadFailed` if the store refuses or cannot be reached, and an `ApiError` (501) without a bucket.
    """

    def __init__(self, config: ProducerConfig) -> None:
        self._config = config
        self._client: S3Client | None = None
        self._connecting = threading.Lock()

    async def put(self, key: str, content: bytes | IO[bytes]) -> None:
        """Write one object."""
        bucket = self.bucket
        if isinstance(content, bytes):
            await self._call(lambda s3: s3.put_object(Bucket=bucket, Key=key, Body=content))
        else:
            await self._call(lambda s3: s3.upload_fileobj(content, bucket, key))

    async def get(self, key: str) -> bytes | None:
        """Return an object, or None if it is not there."""
        bucket = self.bucket
        return await self._call(lambda s3: s3.get_object(Bucket=bucket, Key=key)["Body"].read())

    async def copy_to(self, key: str, file: IO[bytes]) -> bool:
        """Append an object to a file; return whether it is there."""
        bucket = self.bucket

        def copy(s3: "S3Client") -> bool:
            for chunk in s3.get_object(Bucket=bucket, Key=key)["Body"].iter_chunks(1 << 20):
                file.write(chunk)
            return True

        return bool(await self._call(copy))

    async def list(self, prefix: str) -> list[str]:
        """Return the keys that begin with the prefix, in order."""
        bucket = self.bucket

        def keys(s3: "S3Client") -> list[str]:
            pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
            return [each["Key"] for page in pages for each in page.get("Contents", ())]

        return sorted(await self._call(keys) or [])

    async def delete(self, key: str) -> None:
        """Delete an object, if it is there."""
        bucket = self.bucket
        await self._call(lambda s3: s3.delete_object(Bucket=bucket, Key=key))

    async def save_file(self, tenant: str | None, content: IO[bytes], filename: str, purpose: str) -> FileObject:
        """Store a file; its description is written last, so a file without one is incomplete."""
        size = content.seek(0, 2)
        content.seek(0)
        stored = FileObject(
            id=new_name("file"), bytes=size, created_at=int(time.time()), filename=filename[:255], purpose=purpose
        )
        await self.put(file_key(tenant, stored.id), content)
        await self.put(f"{file_key(tenant, stored.id)}.json", msgspec.json.encode(stored))
        return stored

    async def find_file(self, tenant: str | None, file_id: str) -> FileObject:
        """Return a file of the tenant; raise an `ApiError` (404)."""
        packed = await self.get(f"{file_key(tenant, file_id)}.json")
        if packed is None:
            raise ApiError(404, "file_not_found", "there is no such file")
        return msgspec.json.decode(packed, type=FileObject)

    @property
    def bucket(self) -> str:
        """The bucket's name."""
        if self._config.bucket is None:
            raise ApiError(501, "no_bucket", "this gateway has no bucket for files: set STOOP_BUCKET")
        return self._config.bucket

    async def _call(self, ask: "Callable[[S3Client], _T]") -> _T | None:
        from botocore.exceptions import BotoCoreError, ClientError
        from urllib3.exceptions import HTTPError

        def call() -> _T | None:
            try:
                return ask(self._connect())
            except ClientError as error:
                code = error.response.get("Error", {}).get("Code", "")
                if code in ABSENT:
                    return None
                raise refusal(code, ObjectAddress(self.bucket, _ROOT)) from error
            except (BotoCoreError, HTTPError, OSError) as error:
                raise UploadFailed("the object store does not answer") from error

        return await asyncio.to_thread(call)

    def _connect(self) -> "S3Client":
        with self._connecting:
            if self._client is None:
                self._client = connect_store(self._config)
            return self._client


def file_key(tenant: str | None, file_id: str) -> str:
    """Return the key of a file's content; raise an `ApiError` (404) unless it is an id."""
    if not _NAME.fullmatch(file_id):
        raise ApiError(404, "file_not_found", "there is no such file")
    return f"{owner_folder(tenant)}files/{file_id}"
