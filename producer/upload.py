"""Images into the object store, and back: what a caller has in hand becomes an address a worker can read.

An image is kept under the SHA-256 of its bytes, so the same image is uploaded once, by whatever name it goes.
boto3 blocks, so each call runs in a thread.
"""

import asyncio
import base64
import hashlib
import io
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from producer.errors import ConfigError, ImageUnreadable, UploadFailed
from schemas import names
from schemas.address import ObjectAddress, parse_object

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from PIL.Image import Image as PillowImage

    from producer.config import ProducerConfig

    ImageSource = str | Path | bytes | PillowImage

__all__ = ["ImageStore", "is_address"]

_T = TypeVar("_T")

_ADDRESSES = ("s3://", "data:", "https://", "http://")
_ABSENT = ("404", "NoSuchKey", "NotFound")
# who may not list a bucket is refused where there is nothing; the answer to HEAD has no body to say more
_PERHAPS_ABSENT = (*_ABSENT, "403")


def is_address(image: object) -> bool:
    """Say whether the image is already an address, to be sent as it is."""
    return isinstance(image, str) and image.startswith(_ADDRESSES)


class ImageStore:
    """The bucket that local images are uploaded to. Connects at first use."""

    def __init__(self, config: "ProducerConfig") -> None:
        self._config = config
        self._client: S3Client | None = None

    async def address(self, image: "ImageSource") -> str:
        """Return the image's address, uploading it first if it has none.

        An `s3://`, `data:` or `https://` address is returned as it is; any other `str` is a path.
        Raises `ImageUnreadable`, `ConfigError` (no bucket) or `UploadFailed`.
        """
        if isinstance(image, str) and is_address(image):
            return image
        return await asyncio.to_thread(self._upload, image)

    async def read(self, image: "ImageSource") -> bytes:
        """Return the encoded image: of a path, bytes, a Pillow image, `s3://bucket/key[?versionId=...]` or `data:`.

        Raises `ImageUnreadable` or `UploadFailed`.
        """
        if not isinstance(image, str) or not is_address(image):
            return await asyncio.to_thread(_encoded, image)
        if image.startswith("s3://"):
            return await asyncio.to_thread(self._get, image)
        if image.startswith("data:"):
            return _inline(image)
        raise ImageUnreadable(f"{image.partition(':')[0]}: images are read by workers only: download it first")

    def close(self) -> None:
        """Disconnect; idempotent."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _upload(self, image: "ImageSource") -> str:
        encoded = _encoded(image)
        image_format, media_type = _identify(encoded, image if isinstance(image, str | Path) else "the image")
        bucket = self._config.bucket
        if bucket is None:
            raise ConfigError("no bucket to upload images to: set STOOP_BUCKET, or give an s3:// address")
        key = f"{names.IMAGE_PREFIX}{hashlib.sha256(encoded).hexdigest()}.{image_format.lower()}"
        address = ObjectAddress(bucket, key)
        there = self._call(address, lambda s3: s3.head_object(Bucket=bucket, Key=key), absent=_PERHAPS_ABSENT)
        if there is None:
            self._call(
                address,
                lambda s3: s3.put_object(Bucket=bucket, Key=key, Body=encoded, ContentType=media_type),
                absent=(),
            )
        return f"s3://{bucket}/{key}"

    def _get(self, image: str) -> bytes:
        try:
            address = parse_object(image)
        except ValueError as error:
            raise ImageUnreadable(str(error)) from None
        version: Any = {"VersionId": address.version} if address.version else {}
        encoded = self._call(
            address, lambda s3: s3.get_object(Bucket=address.bucket, Key=address.key, **version)["Body"].read()
        )
        if encoded is None:
            raise UploadFailed(f"there is nothing at {address}")
        return encoded

    def _call(
        self, address: ObjectAddress, ask: "Callable[[S3Client], _T]", *, absent: tuple[str, ...] = _ABSENT
    ) -> _T | None:
        """Ask the store; None where its code for the error is in `absent`, `UploadFailed` for every other error."""
        from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError
        from urllib3.exceptions import HTTPError

        try:
            return ask(self._connect())
        except NoCredentialsError as error:
            raise UploadFailed(
                "no credentials for the object store: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
            ) from error
        except ClientError as error:
            code = error.response.get("Error", {}).get("Code", "")
            if code in absent:
                return None
            raise UploadFailed(_advice(code, address)) from error
        except (BotoCoreError, HTTPError, OSError) as error:
            raise UploadFailed(
                f"the object store does not answer ({error}): check STOOP_S3_ENDPOINT and the network"
            ) from error

    def _connect(self) -> "S3Client":
        if self._client is None:
            from boto3.session import Session
            from botocore.client import Config

            # a session of our own: the module's keeps the credentials it has read first
            self._client = Session().client(
                "s3",
                endpoint_url=self._config.s3_endpoint,
                region_name=self._config.s3_region,
                config=Config(
                    signature_version="s3v4",
                    s3={"addressing_style": "path" if self._config.s3_path_style else "auto"},
                    connect_timeout=5,
                    read_timeout=60,
                    retries={"mode": "standard", "max_attempts": 3},
                    # stores other than AWS do not all know the newer checksum headers
                    request_checksum_calculation="when_required",
                    response_checksum_validation="when_required",
                ),
            )
        return self._client


def _advice(code: str, address: ObjectAddress) -> str:
    if code == "NoSuchBucket":
        return f"there is no bucket {address.bucket!r}: make it, or set STOOP_BUCKET to one that exists"
    if code in ("403", "AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch"):
        return f"the object store refuses access to {address} ({code}): check the AWS credentials and their rights"
    return f"the object store answered {code or 'an error'} for {address}"


def _encoded(image: "ImageSource") -> bytes:
    if isinstance(image, bytes):
        return image
    if not isinstance(image, str | Path):
        return _as_png(image)
    path = Path(image).expanduser()
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise ImageUnreadable(f"there is no file {path}") from None
    except IsADirectoryError:
        raise ImageUnreadable(f"{path} is a folder: give one image file") from None
    except OSError as error:
        raise ImageUnreadable(f"cannot read {path}: {error.strerror}") from error


def _inline(address: str) -> bytes:
    try:
        return base64.b64decode(address.partition(",")[2], validate=True)
    except ValueError:
        raise ImageUnreadable("the data: address is not base64") from None


def _as_png(image: "PillowImage") -> bytes:
    if not hasattr(image, "save"):
        raise ImageUnreadable(f"{type(image).__name__} is no image: give an address, a path, bytes or a Pillow image")
    written = io.BytesIO()
    try:
        image.convert("RGB").save(written, "PNG")
    except (OSError, ValueError, SyntaxError) as error:  # Pillow decodes at first use
        raise ImageUnreadable(f"the image cannot be decoded: {error}") from error
    return written.getvalue()


def _identify(encoded: bytes, name: str | Path) -> tuple[str, str]:
    """Return Pillow's name of the format and its media type; `ImageUnreadable` if the bytes are no image."""
    import PIL.Image

    try:
        with warnings.catch_warnings():
            # the worker has its own limit on pixels; only the header is read here
            warnings.simplefilter("ignore", PIL.Image.DecompressionBombWarning)
            with PIL.Image.open(io.BytesIO(encoded)) as opened:
                image_format = opened.format or ""
    except (OSError, ValueError, SyntaxError, PIL.Image.DecompressionBombError):
        raise ImageUnreadable(f"{name} is not an image that Pillow can read") from None
    return image_format, PIL.Image.MIME.get(image_format, "application/octet-stream")
