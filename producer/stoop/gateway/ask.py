"""The content of a request to the queue, over any protocol."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from stoop_schemas.skill import Skill

__all__ = ["Ask", "is_gaze"]

_GAZE: Final = "gaze"


@dataclass(frozen=True, slots=True)
class Ask:
    """A caller's request for one job. `fields` are further fields of `stoop_schemas.job.Job`.

    `names` has the request's own names of the job's fields, where they differ: `{"settings.top_p": "top_p"}`.
    """

    skill: str
    image: str | bytes | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    model: str | None = None
    lane: str | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)


def is_gaze(skill: str, object: str | None, spatial_refs: object) -> bool:
    """Return whether a request means a gaze: by its skill, or as Moondream asks, by pointing at "gaze" from a place."""
    return skill == Skill.GAZE or (skill == Skill.POINT and object == _GAZE and bool(spatial_refs))
