"""One row of a source: an image, and what is asked about it."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from schemas.codec import pack
from schemas.failure import Failure
from schemas.job import Job

__all__ = ["Ask", "Row", "identified"]


@dataclass(frozen=True, slots=True)
class Ask:
    """What the command line asks about every image; a row's own fields win.

    `fields` has fields of `schemas.job.Job`, `settings` those of `schemas.skill.Settings`; what is None is absent.
    """

    skill: str | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Row:
    """A row by its `name`, the one that it has in its source each time the source is read: a key, a path or a number.

    `image` is an address, a path or bytes to upload. `fields` and `settings` are the row's own. `bytes` is the size of
    the image where the source knows it. A row that cannot become a job has a `problem`.
    """

    name: str
    image: str | Path | bytes | None = None
    skill: str | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    bytes: int | None = None
    problem: Failure | None = None

    @property
    def is_local(self) -> bool:
        """Whether the image has to be read and uploaded."""
        return isinstance(self.image, Path | bytes)

    @property
    def weight(self) -> int:
        """Bytes of the image that are held in memory."""
        return len(self.image) if isinstance(self.image, bytes | str) else 0

    @property
    def light(self) -> "Row":
        """The row without the bytes of its image."""
        return replace(self, image=None) if isinstance(self.image, bytes) else self

    @property
    def shown_image(self) -> str | None:
        """The image as a result names it: an address or a path, but no bytes."""
        if isinstance(self.image, bytes) or self.image is None:
            return None
        shown = str(self.image)
        return None if shown.startswith("data:") else shown.encode("utf-8", "backslashreplace").decode()


def identified(job: Job, row: Row, run: str, tries: int) -> Job:
    """Return the job under the id that this row's job has whenever the run is resumed.

    So a job that was submitted before a crash is found again. `run` is random, which keeps ids from being guessed.
    Another content, or a new try after a failure, is another job.
    """
    content = pack(msgspec.structs.replace(job, id=""))
    digest = hashlib.blake2b(digest_size=16)
    for part in (run.encode(), row.name.encode(), str(tries).encode(), content):
        digest.update(len(part).to_bytes(8, "big") + part)
    return msgspec.structs.replace(job, id=f"{digest.hexdigest()}-0")
