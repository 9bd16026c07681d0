"""Requests to the engine and their outputs: the only part of the engine that `stoop_worker.jobs` imports.

The engine may be a thread or a process; nothing here depends on which.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import date
from enum import Enum, StrEnum, auto
from typing import Protocol

from stoop_worker.images import Crops, Image

__all__ = [
    "Aborted",
    "BoxFound",
    "Caption",
    "Chat",
    "Deliver",
    "Detect",
    "Embed",
    "EnginePort",
    "FinishReason",
    "Finished",
    "Gaze",
    "GroundedSpan",
    "Media",
    "Message",
    "Output",
    "Part",
    "Partial",
    "Point",
    "PointFound",
    "Query",
    "ReasoningDelta",
    "Refusal",
    "Refused",
    "Request",
    "Rerank",
    "Sampling",
    "SpatialRef",
    "Task",
    "Terminal",
    "TextDelta",
    "Usage",
]

SpatialRef = tuple[float, ...]
"""A point (x, y) or a box (x_min, y_min, x_max, y_max), as fractions of the image."""


@dataclass(frozen=True, slots=True)
class Query:
    """Answer a question, about the image if the request has one; without `reasoning` the model's default holds."""

    question: str
    reasoning: bool | None = None
    spatial_refs: tuple[SpatialRef, ...] = ()


@dataclass(frozen=True, slots=True)
class Caption:
    """Describe the image; `length` is a key of the model's caption templates."""

    length: str = "normal"


@dataclass(frozen=True, slots=True)
class Detect:
    """Find the boxes of an object."""

    object: str


@dataclass(frozen=True, slots=True)
class Point:
    """Find the centres of an object."""

    object: str


@dataclass(frozen=True, slots=True)
class Gaze:
    """Find the place that a person looks at; `eye` is (x, y), as fractions of the image."""

    eye: tuple[float, float]


class Part(Enum):
    """A part of a message that is not text: it stands for the next of the request's media."""

    IMAGE = auto()


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a chat, by `system`, `user` or `assistant`; its content is texts, and images between them."""

    role: str
    content: tuple[str | Part, ...]


@dataclass(frozen=True, slots=True)
class Chat:
    """Write the next message of a chat. If the model asks for the date, it gets `today`, unless that is None."""

    messages: tuple[Message, ...]
    today: date | None = None


@dataclass(frozen=True, slots=True)
class Embed:
    """Turn each text into a vector.

    `prompt_name` chooses one of the model's prompts, which goes before each text. `dimensions` shortens the vectors of
    a model that allows it. With `truncate` a text that is too long loses its end; without it the request is refused.
    """

    texts: tuple[str, ...]
    prompt_name: str | None = None
    dimensions: int | None = None
    truncate: bool = False


@dataclass(frozen=True, slots=True)
class Rerank:
    """Score how well each document answers the query; with `truncate` a document that is too long loses its end."""

    query: str
    documents: tuple[str, ...]
    truncate: bool = False


Task = Query | Caption | Detect | Point | Gaze | Chat | Embed | Rerank


@dataclass(frozen=True, slots=True)
class Sampling:
    """Rules for choosing tokens: temperature 0 is greedy; detect, point and gaze are always greedy.

    `top_k` limits the choice to the k likeliest tokens; 0 allows all. A text ends before the first of the strings
    `stop`, or at one of the ids `stop_ids`. If `seed` is None, one is drawn at submission; the same seed repeats the
    same tokens in any batch.
    """

    temperature: float = 0.5
    top_p: float = 0.3
    max_tokens: int = 768
    max_objects: int = 50
    seed: int | None = None
    top_k: int = 0
    stop: tuple[str, ...] = ()
    stop_ids: tuple[int, ...] = ()


Media = Crops | Image
"""An image, cut into crops or whole. The device cuts a whole one, which is quick only on a GPU."""


@dataclass(frozen=True, slots=True)
class Request:
    """One unit of the engine's work; without `media` the task uses only text.

    `adapter` is the id of one of the model's LoRA adapters.
    Requests with lower `priority` numbers run first; 0 is the earliest.
    """

    id: str
    task: Task
    media: tuple[Media, ...] = ()
    sampling: Sampling = field(default_factory=Sampling)
    priority: int = 0
    adapter: str | None = None


class FinishReason(StrEnum):
    """The reason a request ended: the model stopped, or a limit stopped it."""

    STOP = "stop"
    LENGTH = "length"


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts, and times in milliseconds from the engine's own clock."""

    input_tokens: int
    output_tokens: int
    cached_tokens: int
    prefill_time_ms: float
    decode_time_ms: float
    ttft_ms: float


@dataclass(frozen=True, slots=True)
class TextDelta:
    """The next piece of the answer or caption."""

    id: str
    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """The next piece of the reasoning."""

    id: str
    text: str


@dataclass(frozen=True, slots=True)
class BoxFound:
    """The next box of a detect request."""

    id: str
    x_min: float
    y_min: float
    x_max: float
    y_max: float


@dataclass(frozen=True, slots=True)
class PointFound:
    """The next point of a point request."""

    id: str
    x: float
    y: float


@dataclass(frozen=True, slots=True)
class GroundedSpan:
    """Characters [start, end) of the reasoning refer to these points."""

    start: int
    end: int
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Finished:
    """The last output of a request that completed, after its deltas and objects.

    `text` is the whole answer or caption; `reasoning` the whole reasoning (None when not asked for). `vectors` has the
    little-endian float32 values of each text's vector, `scores` one number per document.
    """

    id: str
    reason: FinishReason
    usage: Usage
    text: str = ""
    reasoning: str | None = None
    grounding: tuple[GroundedSpan, ...] = ()
    boxes: tuple[BoxFound, ...] = ()
    points: tuple[PointFound, ...] = ()
    vectors: tuple[bytes, ...] = ()
    scores: tuple[float, ...] = ()


class Refusal(StrEnum):
    """The reason the engine refused a request."""

    CONTEXT_OVERFLOW = "context_overflow"
    INVALID_ARGUMENT = "invalid_argument"
    UNSUPPORTED_SKILL = "unsupported_skill"


@dataclass(frozen=True, slots=True)
class Refused:
    """The last output of a request the engine would not run."""

    id: str
    refusal: Refusal
    message: str


@dataclass(frozen=True, slots=True)
class Aborted:
    """The last output of a request that was aborted while waiting or running."""

    id: str


Partial = TextDelta | ReasoningDelta | BoxFound | PointFound
"""An output while a request runs."""

Terminal = Finished | Refused | Aborted
"""The last output of a request."""

Output = Partial | Terminal
"""Every request ends in exactly one Finished, Refused or Aborted, and nothing follows it."""

Deliver = Callable[[Sequence[Output]], None]
"""Takes the outputs of one engine step, in order; called in the engine's thread, must not block."""


class EnginePort(Protocol):
    """The engine as the rest of the worker sees it, from its event loop."""

    @property
    def progress(self) -> int:
        """A counter that grows with each round of the engine's loop, idle or not, and within a long step."""

    @property
    def alive(self) -> bool:
        """True while the loop runs; once it is False, every unfinished request is lost."""

    def submit(self, request: Request) -> None:
        """Hand a request over; raises `EngineFault` when the loop has ended."""

    def abort(self, request_id: str) -> None:
        """End a request within one step; does nothing if it has ended."""
