"""The table of skills: the fields and the output of each. Client, command line, Celery, bulk runs and workers read it.

Another package adds a skill by an entry point of the group `stoop.skills` that names a `SkillSpec`. Install it with the
clients and with the workers. Such a skill runs one of the model's own skills with a prompt of its own.
"""

import functools
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points
from string import Formatter
from types import MappingProxyType
from typing import Any, Final

from stoop_schemas.failure import FailureCode, Rejected
from stoop_schemas.skill import Output, Skill

__all__ = ["BUILT_IN", "REFUSED", "TEXT_OUTPUTS", "SkillSpec", "skills", "spec_of", "takers_of"]

_GROUP: Final = "stoop.skills"
_OUTPUTS: Final = ("answer", "caption", "objects", "points", "gaze", "message", "embeddings", "scores", "transcript")
TEXT_OUTPUTS: Final = ("answer", "caption", "message")
"""The fields of `Output` that are text; a job streams them piece by piece."""


@dataclass(frozen=True, slots=True)
class SkillSpec:
    """One skill.

    `fields` are the fields of `Job` that it takes, in the order of positional arguments; a job needs those of
    `required`. `output` is the field of `Output` that holds its answer. `runs` is the model's own skill that a worker
    runs; None means the skill itself. `prompt`, a template such as "What does the text in {language} say?", becomes the
    question or the object of that skill; the braces name fields of the job. `result`, called on the worker, may
    change the output.
    """

    name: str
    summary: str
    fields: tuple[str, ...]
    required: tuple[str, ...]
    output: str
    options: tuple[str, ...] = ()
    runs: str | None = None
    prompt: str | None = None
    result: Callable[[Output], Output] | None = None

    def __post_init__(self) -> None:
        named = {name for _, name, _, _ in Formatter().parse(self.prompt or "") if name is not None}
        if unknown := sorted(named.difference(self.fields)):
            raise ValueError(f"the prompt of the skill {self.name} names {unknown[0]!r}, which is none of its fields")

    def takes(self, field: str) -> bool:
        """Return whether the skill reads this field of a job."""
        return field in self.fields or field in self.options

    def prompt_for(self, fields: Mapping[str, Any]) -> str | None:
        """Return the prompt made from a job's fields; None if the skill has no prompt of its own."""
        return None if self.prompt is None else self.prompt.format_map(fields)


BUILT_IN: Final[Mapping[str, SkillSpec]] = MappingProxyType(
    {
        spec.name: spec
        for spec in (
            SkillSpec(
                name=Skill.QUERY.value,
                summary="Answer a question about an image.",
                fields=("image", "question"),
                required=("question",),
                output="answer",
                options=("reasoning", "spatial_refs"),
            ),
            SkillSpec(
                name=Skill.CAPTION.value,
                summary="Describe an image.",
                fields=("image", "length"),
                required=("image",),
                output="caption",
            ),
            SkillSpec(
                name=Skill.DETECT.value,
                summary="Find every instance of an object in an image, as boxes.",
                fields=("image", "object"),
                required=("object", "image"),
                output="objects",
            ),
            SkillSpec(
                name=Skill.POINT.value,
                summary="Point at every instance of an object in an image.",
                fields=("image", "object"),
                required=("object", "image"),
                output="points",
                options=("spatial_refs",),
            ),
            SkillSpec(
                name=Skill.GAZE.value,
                summary="Find the place in an image that a person looks at.",
                fields=("image",),
                required=("image", "spatial_refs"),
                output="gaze",
                options=("spatial_refs",),
            ),
            SkillSpec(
                name=Skill.CHAT.value,
                summary="Write the next message of a chat.",
                fields=("messages",),
                required=("messages",),
                output="message",
                options=("date",),
            ),
            SkillSpec(
                name=Skill.EMBED.value,
                summary="Turn texts into vectors.",
                fields=("input",),
                required=("input",),
                output="embeddings",
                options=("prompt_name", "dimensions", "kinds", "truncate"),
            ),
            SkillSpec(
                name=Skill.RERANK.value,
                summary="Score how well documents answer a query.",
                fields=("query", "documents"),
                required=("query", "documents"),
                output="scores",
                options=("truncate",),
            ),
            SkillSpec(
                name=Skill.TRANSCRIBE.value,
                summary="Transcribe the speech in a recording.",
                fields=("audio",),
                required=("audio",),
                output="transcript",
                options=("language", "prompt", "timestamps", "vad", "parallel"),
            ),
            SkillSpec(
                name=Skill.TRANSLATE.value,
                summary="Translate the speech in a recording into English text.",
                fields=("audio",),
                required=("audio",),
                output="transcript",
                options=("language", "prompt", "timestamps", "vad", "parallel"),
                runs=Skill.TRANSCRIBE.value,
            ),
        )
    }
)
"""The skills that come with Stoop."""

REFUSED: Final = {
    "segment": "no model here can segment: the prompt, the tokens of its path and the network that refines its mask "
    "are not public; detect gives boxes and point gives places"
}
"""Skills of Moondream's own service that no public model has, and the reason."""


@functools.cache
def skills() -> Mapping[str, SkillSpec]:
    """Return every skill of this installation by its name, those of other packages included.

    A package's skill that cannot be used is left out with a warning that names the package.
    """
    found = dict(BUILT_IN)
    for entry in entry_points(group=_GROUP):
        try:
            spec = _loaded(entry)
        except Exception as error:  # a stranger's module may raise anything at its import
            warnings.warn(f"the skill {entry.name} ({entry.value}) cannot be used: {error}", stacklevel=2)
            continue
        found.setdefault(spec.name, spec)
    return MappingProxyType(found)


def spec_of(name: str) -> SkillSpec:
    """Return the skill of this name; raise `Rejected` (unsupported_skill) with the names that are known."""
    spec = BUILT_IN.get(name) or skills().get(name)
    if spec is None:
        if name in REFUSED:
            raise Rejected(FailureCode.UNSUPPORTED_SKILL, REFUSED[name])
        near = get_close_matches(name, skills(), n=1)
        meant = f" (did you mean {near[0]!r}?)" if near else ""
        known = ", ".join(skills())
        raise Rejected(FailureCode.UNSUPPORTED_SKILL, f"unknown skill {name[:64]!r}{meant}; known are {known}")
    return spec


def takers_of(field: str) -> tuple[str, ...]:
    """Name the skills that read this field of a job; no name for a field that belongs to no skill, such as `model`."""
    return tuple(spec.name for spec in skills().values() if spec.takes(field))


def _loaded(entry: EntryPoint) -> SkillSpec:
    spec = entry.load()
    if not isinstance(spec, SkillSpec):
        raise TypeError("its entry point must name a stoop_schemas.skills.SkillSpec")
    if spec.name != entry.name or spec.name in BUILT_IN:
        raise ValueError(
            f"its entry point is {entry.name}: give it the skill's name, and not that of a skill that comes with Stoop"
        )
    runs = BUILT_IN.get(spec.runs or "")
    if runs is None:
        raise ValueError(f"runs must be one of {', '.join(BUILT_IN)}, the skills that models have")
    if spec.output not in _OUTPUTS:
        raise ValueError(f"output must be one of {', '.join(_OUTPUTS)}")
    return spec
