"""The values of a skill: its settings and the shapes of its answers. `skills.py` has the table of the skills."""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

import msgspec

from stoop_schemas.chat import Answer
from stoop_schemas.response_format import ResponseFormat
from stoop_schemas.transcript import Transcript

__all__ = [
    "ADAPTER_PATTERN",
    "REGEX_LIMIT",
    "SETTING_RANGES",
    "STOPS_LIMIT",
    "STOP_LIMIT",
    "Box",
    "CaptionLength",
    "Grounding",
    "Output",
    "Point",
    "Reasoning",
    "Settings",
    "Skill",
    "SparseVector",
    "SpatialRef",
    "TokenVectors",
    "VectorKind",
]

SpatialRef = tuple[float, ...]
"""A point (x, y) or a box (x_min, y_min, x_max, y_max), as fractions of the image's width and height."""


class Skill(StrEnum):
    """The skills that come with Stoop. A job names its skill by a string, so that packages can add others."""

    QUERY = "query"
    CAPTION = "caption"
    DETECT = "detect"
    POINT = "point"
    CHAT = "chat"
    GAZE = "gaze"
    EMBED = "embed"
    RERANK = "rerank"
    TRANSCRIBE = "transcribe"
    TRANSLATE = "translate"


class CaptionLength(StrEnum):
    """The length of a caption."""

    SHORT = "short"
    NORMAL = "normal"
    LONG = "long"


class Settings(msgspec.Struct, frozen=True, omit_defaults=True):
    """Sampling settings of one answer. Absent fields take the worker's defaults.

    `temperature` 0 is greedy; `top_p` in [0, 1]; `max_tokens` bounds the answer (and, on its own, the reasoning before
    it); `max_objects` bounds detect and point; the same `seed` repeats the same answer. `top_k` limits the choice to
    the k likeliest tokens, 0 allows all. A text ends before the first of the strings `stop`, which are no part of the
    answer. `presence_penalty` is subtracted from the logits of tokens that the model has written already, in its
    reasoning too, and `frequency_penalty` for each time. A text has the form of `response_format`, or one that the
    regular expression `regex` matches as a whole. `min_pixels` and `max_pixels` bound the size to which a model that
    reads images at their own resolution resizes them. `adapter` is the id of a LoRA adapter that the worker has.
    """

    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    max_objects: int | None = None
    seed: int | None = None
    top_k: int | None = None
    stop: list[str] | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    response_format: ResponseFormat | None = None
    regex: str | None = None
    min_pixels: int | None = None
    max_pixels: int | None = None
    adapter: str | None = None


STOPS_LIMIT: Final = 16
"""Most stop strings of a job."""

REGEX_LIMIT: Final = 8192
"""Most characters of a regular expression."""

STOP_LIMIT: Final = 256
"""Most characters of a stop string."""

ADAPTER_PATTERN: Final = r"[A-Za-z0-9][A-Za-z0-9._@:-]{0,127}"
"""The id of an adapter, whole."""

SETTING_RANGES: Final[Mapping[str, tuple[float, float]]] = MappingProxyType(
    {
        "temperature": (0, 10),
        "top_p": (0, 1),
        "max_tokens": (1, 1 << 20),
        "max_objects": (1, 1 << 16),
        "seed": (0, (1 << 63) - 1),
        "top_k": (0, 1 << 20),
        "presence_penalty": (-2, 2),
        "frequency_penalty": (-2, 2),
        "min_pixels": (1, 1 << 26),
        "max_pixels": (1, 1 << 26),
    }
)
"""The least and the greatest value of each setting that is a number."""


class Point(msgspec.Struct, frozen=True):
    """A place in the image, as fractions of its width and height."""

    x: float
    y: float


class Box(msgspec.Struct, frozen=True):
    """A rectangle in the image, as fractions of its width and height; not clamped to [0, 1]."""

    x_min: float
    y_min: float
    x_max: float
    y_max: float


class Grounding(msgspec.Struct, frozen=True):
    """Characters [start_idx, end_idx) of the reasoning text refer to these (x, y) points."""

    start_idx: int
    end_idx: int
    points: list[tuple[float, float]]


class Reasoning(msgspec.Struct, frozen=True):
    """The reasoning that the model wrote before its answer."""

    text: str
    grounding: list[Grounding]


class VectorKind(StrEnum):
    """The kinds of vectors of a text."""

    DENSE = "dense"
    SPARSE = "sparse"
    COLBERT = "colbert"


class SparseVector(msgspec.Struct, frozen=True):
    """The weights of a text's tokens: `values[i]` is that of the token id `indices[i]`. The ids rise."""

    indices: list[int]
    values: list[float]


class TokenVectors(msgspec.Struct, frozen=True):
    """One vector for each of a text's `count` tokens, one after another: little-endian float32 values in base64."""

    count: int
    values: str


class Output(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer of one job: only the fields of its skill are present.

    query: `answer` (and `reasoning` when asked for); caption: `caption`; detect: `objects`; point: `points`; gaze:
    `gaze`, which is None if the person looks at nothing in the image; chat: `message`; embed: `embeddings`, one vector
    per text, each as its little-endian float32 values in base64, and `sparse` and `colbert` if the job asks for these
    kinds; rerank: `scores`, one number per document, higher for a better document; transcribe and
    translate: `transcript`.
    """

    answer: str | None = None
    reasoning: Reasoning | None = None
    caption: str | None = None
    objects: list[Box] | None = None
    points: list[Point] | None = None
    gaze: Point | msgspec.UnsetType | None = msgspec.UNSET
    message: Answer | None = None
    embeddings: list[str] | None = None
    sparse: list[SparseVector] | None = None
    colbert: list[TokenVectors] | None = None
    scores: list[float] | None = None
    transcript: Transcript | None = None

    @property
    def text(self) -> str | None:
        """The text of the answer; None if the answer is not a text."""
        if self.message is not None:
            return self.message.content
        if self.transcript is not None:
            return self.transcript.text
        return self.answer if self.answer is not None else self.caption
