"""The place of the shards: a folder, or a prefix of the object store."""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from stoop.bulk.arguments import sync_folder
from stoop.errors import ConfigError, UploadFailed
from stoop.images.store import connect_store, no_answer

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from stoop.config import ProducerConfig

__all__ = ["Bucket", "Folder", "Place", "open_place"]


class Place(Protocol):
    """Keeps files by their names. Raises `UploadFailed` or `OSError`."""

    @property
    def address(self) -> str:
        """The folder or the address, for messages."""

    def names(self) -> list[str]:
        """Return the names of all files."""

    def put(self, path: Path) -> None:
        """Move a file here, durably, under its name; an earlier file of that name is replaced as a whole."""

    def get(self, name: str, path: Path) -> None:
        """Copy a file to a path."""


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder of the same file system as the run's."""

    address: str

    def names(self) -> list[str]:
        """List the folder; one that is missing is empty."""
        path = Path(self.address)
        return [each.name for each in path.iterdir()] if path.is_dir() else []

    def put(self, path: Path) -> None:
        """Rename the file, after a sync to disk."""
        with path.open("rb") as file:
            os.fsync(file.fileno())
        path.replace(Path(self.address) / path.name)
        sync_folder(Path(self.address))

    def get(self, name: str, path: Path) -> None:
        """Make a second name for the file."""
        path.unlink(missing_ok=True)
        path.hardlink_to(Path(self.address) / name)


@dataclass(frozen=True, slots=True)
class Bucket:
    """The objects of a bucket whose keys begin with `prefix`, which is empty or ends in a slash."""

    bucket: str
    prefix: str
    config: "ProducerConfig"

    @property
    def address(self) -> str:
        """The address of the prefix, as messages show it."""
        return f"s3://{self.bucket}/{self.prefix}".rstrip("/")

    def names(self) -> list[str]:
        """List the prefix, a thousand keys a call."""
        with self._store("list") as store:
            pages = store.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=self.prefix)
            return [found["Key"][len(self.prefix) :] for page in pages for found in page.get("Contents", ())]

    def put(self, path: Path) -> None:
        """Upload the file in parts, and remove it here."""
        with self._store("upload to") as store:
            store.upload_file(str(path), self.bucket, self.prefix + path.name)
        path.unlink()

    def get(self, name: str, path: Path) -> None:
        """Download the object."""
        with self._store("read") as store:
            store.download_file(self.bucket, self.prefix + name, str(path))

    @contextlib.contextmanager
    def _store(self, doing: str) -> "Iterator[S3Client]":
        from boto3.exceptions import Boto3Error
        from botocore.exceptions import BotoCoreError, ClientError

        store = connect_store(self.config)
        try:
            yield store
        except BotoCoreError as error:
            raise no_answer(error) from error
        except (Boto3Error, ClientError) as error:
            raise UploadFailed(f"cannot {doing} {self.address}: {error}") from error
        finally:
            store.close()


def open_place(named: str | None, folder: Path, config: "ProducerConfig") -> Place:
    """Return the place of the address `s3://bucket/prefix`, or the run's own folder; raises `ConfigError`."""
    if named is None:
        return Folder(str(folder))
    bucket, _, prefix = named.removeprefix("s3://").partition("/")
    if not named.startswith("s3://") or not bucket:
        raise ConfigError(f"{named} is not an s3://bucket/prefix: leave --vectors out to keep the shards in --out")
    return Bucket(bucket, f"{prefix.rstrip('/')}/" if prefix.rstrip("/") else "", config)
