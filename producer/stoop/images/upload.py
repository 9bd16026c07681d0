"""Uploads images and recordings to the object store, so that a caller's file has an address workers can read.

A file's key is the SHA-256 of its bytes, so the same file is uploaded once under any name. Before uploading, the
client checks whether the object exists, unless it put or found it recently. An object that is a day old is
uploaded again, so that a bucket rule for old uploads removes none in use. boto3 blocks, so each call runs in a
thread.
"""

import asyncio
import contextlib
import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from stoop.errors import ConfigError, ImageUnreadable, UploadFailed
from stoop.images import source as image_source
from stoop.images.recording import load_audio
from stoop.images.source import is_address
from stoop.images.store import ABSENT, connect_store, no_answer, refusal
from stoop_schemas.address import ObjectAddress, parse_object
from stoop_schemas.job import IMAGE_LIMIT

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from stoop.config import ProducerConfig
    from stoop.images.recording import AudioSource
    from stoop.images.source import ImageSource, Loaded

__all__ = ["ImageStore"]

_T = TypeVar("_T")

_KNOWN_IMAGES: Final = 1024
_KNOWN_SECONDS: Final = 600.0  # check again after that: the bucket may have been emptied
_FRESH_SECONDS: Final = 86_400.0  # the bucket may have a rule that removes objects of some days

# without the right to list the bucket, a missing object gives 403, and the answer to HEAD has no body to explain it
_PERHAPS_ABSENT = (*ABSENT, "403")


class ImageStore:
    """The bucket that local images are uploaded to. Connects at first use.

    For ten minutes it remembers the last 1,024 images that it put or found there. `clock` returns seconds.
    """

    def __init__(self, config: "ProducerConfig", *, clock: Callable[[], float] = time.monotonic) -> None:
        self._config = config
        self._clock = clock
        self._client: S3Client | None = None
        self._connecting = threading.Lock()
        self._known: OrderedDict[str, tuple[str, float]] = OrderedDict()
        self._uploads: dict[str, asyncio.Task[str]] = {}

    async def address(self, image: "ImageSource") -> str:
        """Return the image's address, uploading the image first if it has none.

        An `s3://`, `data:` or `https://` address is returned unchanged, except that a `data:` address too long for a
        job is uploaded. Any other `str` is a path. Raises `ImageUnreadable`, `ConfigError` (no bucket) or
        `UploadFailed`.
        """
        given = _address_of(image)
        if given is None:
            return await self._stored(image)
        if given.startswith("data:") and len(given) > IMAGE_LIMIT:
            return await self._stored(image_source.inline(given))
        return given

    async def audio_address(self, audio: "AudioSource") -> str:
        """Return the recording's address, uploading its file first if it has none, as `address` does for an image.

        Raises `AudioUnreadable`, `ConfigError` (no bucket) or `UploadFailed`.
        """
        if (
            isinstance(audio, str)
            and is_address(audio)
            and not (audio.startswith("data:") and len(audio) > IMAGE_LIMIT)
        ):
            return audio
        loaded = await asyncio.to_thread(load_audio, audio)
        digest = await asyncio.to_thread(lambda: loaded.digest)
        return await self._once(digest, lambda: self._put(loaded.encoded, digest, loaded.suffix, loaded.media_type))

    async def read(self, image: "ImageSource", *, most: int | None = None) -> bytes:
        """Return the encoded image. Accepts all that `address` accepts, except `https://`.

        Of an object it returns the first `most` bytes. Raises `ImageUnreadable` or `UploadFailed`.
        """
        given = _address_of(image)
        if given is None:
            return await asyncio.to_thread(lambda: image_source.encoded(image_source.load(image)))
        if given.startswith("s3://"):
            return await asyncio.to_thread(self._get, given, most)
        if given.startswith("data:"):
            return image_source.inline(given)
        raise ImageUnreadable(f"only workers read {given.partition(':')[0]}: images: download it first")

    def close(self) -> None:
        """Disconnect without waiting for uploads; idempotent."""
        for upload in self._uploads.values():
            upload.cancel()
        if self._client is not None:
            self._client.close()
            self._client = None

    async def _stored(self, image: object) -> str:
        loaded, fingerprint = await asyncio.to_thread(_load, image)
        name = image if isinstance(image, str | Path) else "the image"
        return await self._once(fingerprint, lambda: self._upload(loaded, name))

    async def _once(self, fingerprint: str, work: Callable[[], str]) -> str:
        """Return the address of this fingerprint: a recent one, or else the result of `work`."""
        if address := self._recall(fingerprint):
            return address
        upload = self._uploads.get(fingerprint)
        if upload is None:
            upload = asyncio.create_task(asyncio.to_thread(work))
            self._uploads[fingerprint] = upload
            upload.add_done_callback(lambda done: self._uploaded(fingerprint, done))
        # others may wait for the same upload, so a cancelled caller must not cancel it
        return await asyncio.shield(upload)

    def _recall(self, fingerprint: str) -> str | None:
        address, until = self._known.get(fingerprint, (None, 0.0))
        if self._clock() >= until:
            self._known.pop(fingerprint, None)
            return None
        self._known.move_to_end(fingerprint)
        return address

    def _uploaded(self, fingerprint: str, upload: "asyncio.Task[str]") -> None:
        del self._uploads[fingerprint]
        if upload.cancelled() or upload.exception():
            return
        self._known[fingerprint] = (upload.result(), self._clock() + _KNOWN_SECONDS)
        while len(self._known) > _KNOWN_IMAGES:
            self._known.popitem(last=False)

    def _upload(self, loaded: "Loaded", name: str | Path) -> str:
        encoded = image_source.encoded(loaded)
        image_format, media_type = image_source.identify(encoded, name)
        return self._put(encoded, hashlib.sha256(encoded).hexdigest(), image_format.lower(), media_type)

    def _put(self, encoded: bytes, digest: str, suffix: str, media_type: str) -> str:
        bucket = self._config.bucket
        if bucket is None:
            raise ConfigError("no bucket to upload files to: set STOOP_BUCKET, or give an s3:// address")
        key = f"{self._config.upload_prefix}{digest}.{suffix}"
        address = ObjectAddress(bucket, key)
        there = self._call(address, lambda s3: s3.head_object(Bucket=bucket, Key=key), absent=_PERHAPS_ABSENT)
        if there is None or _is_old(there.get("LastModified")):
            self._call(
                address,
                lambda s3: s3.put_object(Bucket=bucket, Key=key, Body=encoded, ContentType=media_type),
                absent=(),
            )
        return f"s3://{bucket}/{key}"

    def _get(self, image: str, most: int | None) -> bytes:
        try:
            address = parse_object(image)
        except ValueError as error:
            raise ImageUnreadable(str(error)) from None
        version: Any = {"VersionId": address.version} if address.version else {}

        def get(s3: "S3Client") -> bytes:
            with contextlib.closing(s3.get_object(Bucket=address.bucket, Key=address.key, **version)["Body"]) as body:
                return body.read(most)

        encoded = self._call(address, get)
        if encoded is None:
            raise UploadFailed(f"there is nothing at {address}", absent=True)
        return encoded

    def _call(
        self, address: ObjectAddress, ask: "Callable[[S3Client], _T]", *, absent: tuple[str, ...] = ABSENT
    ) -> _T | None:
        """Call the store. Return None if the error code is in `absent`; raise `UploadFailed` for any other error."""
        from botocore.exceptions import BotoCoreError, ClientError
        from urllib3.exceptions import HTTPError

        try:
            return ask(self._connect())
        except ClientError as error:
            code = error.response.get("Error", {}).get("Code", "")
            if code in absent:
                return None
            raise refusal(code, address) from error
        except (BotoCoreError, HTTPError, OSError) as error:
            raise no_answer(error) from error

    def _connect(self) -> "S3Client":
        with self._connecting:
            if self._client is None:
                self._client = connect_store(self._config)
            return self._client


def _is_old(modified: datetime | None) -> bool:
    return modified is not None and time.time() - modified.timestamp() > _FRESH_SECONDS


def _address_of(image: object) -> str | None:
    """Return the image's address if it has one, like Moondream's own encoded images and ours."""
    given = getattr(image, "image_url", image)
    return str(given) if is_address(given) else None


def _load(image: object) -> "tuple[Loaded, str]":
    loaded = image_source.load(image)
    return loaded, image_source.fingerprint(loaded)
