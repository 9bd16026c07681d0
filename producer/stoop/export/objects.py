"""Reads whole objects, or their first bytes, from the object store."""

from typing import TYPE_CHECKING, Any, Final

from stoop.errors import ImageUnreadable, UploadFailed
from stoop.images.store import ABSENT, connect_store, no_answer, refusal
from stoop_schemas.address import ObjectAddress, parse_object

if TYPE_CHECKING:
    from stoop.config import ProducerConfig

__all__ = ["ObjectReader"]

_CONNECTIONS: Final = 16


class ObjectReader:
    """Reads `s3://` addresses; threads may share it."""

    def __init__(self, config: "ProducerConfig") -> None:
        self._client = connect_store(config, connections=_CONNECTIONS)

    def read(self, address: str, count: int | None = None) -> bytes:
        """Return the object at the address, or at most its first `count` bytes.

        Raises `ImageUnreadable` (no such address or object) or `UploadFailed` (the store refuses or does not answer).
        """
        from botocore.exceptions import BotoCoreError, ClientError
        from urllib3.exceptions import HTTPError

        try:
            at = parse_object(address)
        except ValueError:
            raise ImageUnreadable("not an s3:// address: --images takes a folder for images elsewhere") from None
        try:
            return self._get(at, count)
        except ClientError as error:
            raise _failure(error.response.get("Error", {}).get("Code", ""), at) from error
        except (BotoCoreError, HTTPError, OSError) as error:
            raise no_answer(error) from error

    def close(self) -> None:
        """Disconnect."""
        self._client.close()

    def _get(self, at: ObjectAddress, count: int | None) -> bytes:
        request: dict[str, Any] = {"Bucket": at.bucket, "Key": at.key}
        if at.version:
            request["VersionId"] = at.version
        if count is not None:
            request["Range"] = f"bytes=0-{count - 1}"
        body = self._client.get_object(**request)["Body"]
        try:
            # a store without range support sends the whole object
            return body.read(count)
        finally:
            body.close()


def _failure(code: str, at: ObjectAddress) -> ImageUnreadable | UploadFailed:
    if code in ABSENT:
        return ImageUnreadable(f"there is nothing at {at}")
    if code == "InvalidRange":
        return ImageUnreadable(f"{at} is empty")
    return refusal(code, at)
