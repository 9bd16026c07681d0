"""One hostile input to the queue, and its required outcome."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.support.web_server import Answer

__all__ = ["BUCKET", "HOST", "MARK", "Case", "bare", "job", "with_image"]

BUCKET = "stoop"
HOST = "images.example"
MARK = "PLANTED"
"""Stands in whatever a caller or a secret says, ids excepted: no log may have it."""


@dataclass(frozen=True)
class Case:
    """An entry `packed`, and its surroundings: objects in the store, pages and hosts on the web.

    `ends` is a failure code or a state; `last` is the code of the failure that used the last attempt up. `job_id` is
    where the result is looked for; None means under the entry's own id. `fields` are put into the entry beside the job.
    """

    name: str
    ends: str
    packed: bytes
    job_id: str | None = None
    last: str = ""
    fields: Mapping[str, bytes] = field(default_factory=dict)
    objects: Mapping[str, bytes] = field(default_factory=dict)
    pages: Mapping[str, Answer] = field(default_factory=dict)
    hosts: Mapping[str, Sequence[str] | OSError] = field(default_factory=dict)


def job(name: str, ends: str, *, objects: Mapping[str, bytes] | None = None, **fields: Any) -> Case:
    """Make a case of a job that is valid except for these fields; its id is its name in another form."""
    job_id = fields.pop("id", "case-" + "".join(c if c.isalnum() and c.isascii() else "-" for c in name))
    given = {"id": job_id, "skill": "query", "question": f"What? {MARK}", "metadata": {"secret": MARK}, **fields}
    packed = json.dumps({key: value for key, value in given.items() if value is not None}).encode()
    return Case(name, ends, packed, job_id, objects=objects or {})


def bare(name: str, ends: str, packed: bytes | str, **changes: Any) -> Case:
    """Make a case of an entry that is not a job, or whose id cannot be read."""
    return Case(name, ends, packed if isinstance(packed, bytes) else packed.encode(), **changes)


def with_image(name: str, ends: str, image: bytes) -> Case:
    """Make a case of a job with these bytes as its image."""
    key = "in/" + "".join(c if c.isalnum() and c.isascii() else "-" for c in name)
    return job(name, ends, objects={key: image}, image=f"s3://{BUCKET}/{key}", skill="caption", question=None)
