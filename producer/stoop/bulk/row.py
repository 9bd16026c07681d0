"""One row of a source: an image and the question about it."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from stoop_schemas.chat_images import image_sources
from stoop_schemas.codec import pack
from stoop_schemas.failure import Failure
from stoop_schemas.job import Job
from stoop_schemas.skills import skills

__all__ = ["Ask", "Row", "grouped", "identified", "in_its_field"]


@dataclass(frozen=True, slots=True)
class Ask:
    """The command line's skill, fields and settings for every image; a row's own values win.

    `fields` holds fields of `stoop_schemas.job.Job`, `settings` those of `stoop_schemas.skill.Settings`.
    """

    skill: str | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a source. Its `name` (a key, a path or a number) is the same each time the source is read.

    `image` is an address, a path or bytes to upload. `fields` and `settings` are the row's own. `bytes` is the size of
    the image if the source knows it. A row with a `problem` cannot become a job. A row with `members` is a group of
    rows that share one job, and each member gets a line of its own; `grouped` makes it.
    """

    name: str
    image: str | Path | bytes | None = None
    skill: str | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    bytes: int | None = None
    problem: Failure | None = None
    members: tuple["Row", ...] = ()

    @property
    def parts(self) -> tuple["Row", ...]:
        """The rows that get a line: the members of a group, or else the row itself."""
        return self.members or (self,)

    @property
    def is_local(self) -> bool:
        """True if an image must be read and uploaded."""
        return any(isinstance(image, Path | bytes) for image in self.images)

    @property
    def images(self) -> list[Any]:
        """The row's image, or those in its messages."""
        own = [] if self.image is None else [self.image]
        return own + image_sources(self.fields.get("messages") or ())

    @property
    def weight(self) -> int:
        """Bytes of image data, and characters of texts, held in memory."""
        return (len(self.image) if isinstance(self.image, bytes | str) else 0) + sum(map(len, self._texts))

    @property
    def light(self) -> "Row":
        """The row without its image's bytes."""
        return replace(self, image=None) if isinstance(self.image, bytes) else self

    @property
    def shown_image(self) -> str | None:
        """The address or path of the only image as a result shows it; None for bytes and `data:` addresses."""
        if len(self.images) != 1 or isinstance(self.images[0], bytes):
            return None
        shown = str(self.images[0])
        return None if shown.startswith("data:") else shown.encode("utf-8", "backslashreplace").decode()

    @property
    def _texts(self) -> list[str]:
        texts: list[str] = self.fields.get("input") or []
        return texts if isinstance(texts, list) and all(isinstance(each, str) for each in texts) else []


def grouped(members: Sequence[Row]) -> Row:
    """Return one row for the texts of all members, which embed a text each; its name is that of the first and last."""
    texts = [text for each in members for text in each.fields["input"]]
    return Row(f"{members[0].name}-{members[-1].name}", fields={"input": texts}, members=tuple(members))


def in_its_field(skill: str, file: Any) -> dict[str, Any]:
    """Return the file of a row as the field in which the skill takes it: `audio` for recordings, otherwise `image`."""
    hears = skill in skills() and skills()[skill].takes("audio")
    return {"audio" if hears else "image": file}


def identified(job: Job, row: Row, run: str, tries: int) -> Job:
    """Return the job with an id that stays the same whenever the run is resumed.

    A resumed run therefore finds a job that it submitted before a crash. `run` is random, so ids cannot be guessed.
    The place of its output does not affect the id. Changed content, or a new try after a failure, gives another id.
    """
    content = pack(msgspec.structs.replace(job, id="", store_output=False))
    digest = hashlib.blake2b(digest_size=16)
    for part in (run.encode(), row.name.encode(), str(tries).encode(), content):
        digest.update(len(part).to_bytes(8, "big") + part)
    return msgspec.structs.replace(job, id=f"{digest.hexdigest()}-0")
