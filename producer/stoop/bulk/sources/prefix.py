"""The images under a prefix of an object store."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stoop.bulk.row import Row
from stoop.bulk.sources.source import SUFFIXES, is_wanted
from stoop.errors import ConfigError, UploadFailed
from stoop.images.store import connect_store, no_answer
from stoop_schemas.address import object_address
from stoop_schemas.failure import Failure, FailureCode

if TYPE_CHECKING:
    from stoop.config import ProducerConfig

__all__ = ["Prefix", "read_prefix"]

_ATTEMPTS = 5  # several, because a failed page ends the whole run


@dataclass(frozen=True, slots=True)
class Prefix:
    """Every image whose key begins with `prefix`; keys are listed a thousand at a time during reading.

    `match` is a pattern for the part of a key after the prefix's last slash; without one the `suffixes` decide.
    """

    bucket: str
    prefix: str
    config: "ProducerConfig"
    match: str | None = None
    suffixes: tuple[str, ...] = SUFFIXES

    @property
    def facts(self) -> dict[str, str | None]:
        """The prefix's address; images may be added under it between sessions."""
        return {"source": f"s3://{self.bucket}/{self.prefix}", "match": self.match}

    def rows(self) -> Iterator[Row]:
        """List the keys in their order. Raises `UploadFailed` if the store refuses or does not answer."""
        cut = self.prefix.rfind("/") + 1
        for key, size in self._keys():
            if is_wanted(key[cut:], self.match, self.suffixes) and not key.endswith("/"):
                yield _row(self.bucket, key, size)

    def count(self) -> int:
        """Count the images, with one call to the store per thousand keys."""
        return sum(1 for _ in self.rows())

    def _keys(self) -> Iterator[tuple[str, int]]:
        from botocore.exceptions import BotoCoreError, ClientError

        store = connect_store(self.config, attempts=_ATTEMPTS)
        try:
            for page in store.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=self.prefix):
                for found in page.get("Contents", ()):
                    yield found["Key"], found["Size"]
        except ClientError as error:
            code = error.response.get("Error", {}).get("Code", "an error")
            raise UploadFailed(
                f"the object store answered {code} to a list of s3://{self.bucket}/{self.prefix}: check the bucket's"
                " name, and the AWS credentials and their rights"
            ) from error
        except BotoCoreError as error:
            raise no_answer(error) from error
        finally:
            store.close()


def _row(bucket: str, key: str, size: int) -> Row:
    try:
        address = object_address(bucket, key)
    except ValueError as error:
        return Row(f"s3://{bucket}/{key}", problem=Failure.of(FailureCode.INVALID_ARGUMENT, str(error)))
    return Row(address, image=address, bytes=size)


def read_prefix(
    address: str, config: "ProducerConfig", match: str | None, suffixes: tuple[str, ...] = SUFFIXES
) -> Prefix:
    """Parse `s3://bucket/prefix`; the prefix may be empty."""
    bucket, _, prefix = address.removeprefix("s3://").partition("/")
    if not bucket:
        raise ConfigError(f"{address} names no bucket: give s3://bucket/prefix")
    if prefix.endswith((".jsonl", ".ndjson", ".csv", ".tsv", ".parquet", ".pq")):
        raise ConfigError(f"{address} is a file of rows: download it, and give its path")
    return Prefix(bucket, prefix, config, match, suffixes)
