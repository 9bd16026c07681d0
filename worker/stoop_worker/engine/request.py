"""Requests to the engine and their outputs: the only part of the engine that `stoop_worker.jobs` imports.

The engine may be a thread or a process; nothing here depends on which.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, Protocol

from stoop_worker.audio import Mel
from stoop_worker.engine.media import Media, images_of
from stoop_worker.engine.task import (
    Caption,
    Chat,
    Detect,
    Embed,
    Gaze,
    Message,
    Part,
    Point,
    Query,
    Rerank,
    SpatialRef,
    Task,
    Transcribe,
    VectorKind,
)
from stoop_worker.engine.window import Segment, Window, Word

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
    "Grammar",
    "GroundedSpan",
    "Media",
    "Mel",
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
    "RequestInvalid",
    "Rerank",
    "Sampling",
    "Segment",
    "SparseVector",
    "SpatialRef",
    "Task",
    "Terminal",
    "TextDelta",
    "TokenVectors",
    "Transcribe",
    "Usage",
    "VectorKind",
    "Window",
    "Word",
    "images_of",
]


@dataclass(frozen=True, slots=True)
class Grammar:
    """The form of a text: JSON that is valid by a JSON Schema, or a text that a regular expression matches as a whole.

    One of the two is given. `schema` is itself JSON.
    """

    schema: str | None = None
    regex: str | None = None


@dataclass(frozen=True, slots=True)
class Sampling:
    """Rules for choosing tokens: temperature 0 is greedy; detect, point and gaze are always greedy.

    `top_k` limits the choice to the k likeliest tokens; 0 allows all. A text ends before the first of the strings
    `stop`, or at one of the ids `stop_ids`. If `seed` is None, one is drawn at submission; the same seed repeats the
    same tokens in any batch. Each token that the model has written already, in its reasoning too, loses
    `presence_penalty`, and `frequency_penalty` for each time, from its logit. The text, but not the reasoning before
    it, follows the `grammar`.
    """

    temperature: float = 0.5
    top_p: float = 0.3
    max_tokens: int = 768
    max_objects: int = 50
    seed: int | None = None
    top_k: int = 0
    stop: tuple[str, ...] = ()
    stop_ids: tuple[int, ...] = ()
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    grammar: Grammar | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """One unit of the engine's work; without `media` the task uses only text.

    `adapter` is the id of one of the model's LoRA adapters.
    Requests with lower `priority` numbers run first; 0 is the earliest. Without `stream` it has one output, the last.
    """

    id: str
    task: Task
    media: tuple[Media, ...] = ()
    sampling: Sampling = field(default_factory=Sampling)
    priority: int = 0
    adapter: str | None = None
    stream: bool = True


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


class TextDelta(NamedTuple):
    """The next piece of the answer or caption. A tuple, because each step makes and sends very many."""

    id: str
    text: str


class ReasoningDelta(NamedTuple):
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
class SparseVector:
    """The weights of a text's token ids: those above 0, by rising id."""

    ids: tuple[int, ...]
    weights: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class TokenVectors:
    """The vectors of a text's tokens, `count` of them one after another: little-endian float32 values."""

    count: int
    values: bytes


@dataclass(frozen=True, slots=True)
class Finished:
    """The last output of a request that completed, after its deltas and objects.

    `text` is the whole answer or caption; `reasoning` the whole reasoning (None when not asked for). `vectors` has the
    little-endian float32 values of each text's vector, `sparse` its weights and `colbert` its tokens' vectors; `scores`
    has one number per document. `window` is the transcript of a window of speech.
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
    sparse: tuple[SparseVector, ...] = ()
    colbert: tuple[TokenVectors, ...] = ()
    scores: tuple[float, ...] = ()
    window: Window | None = None


class Refusal(StrEnum):
    """The reason the engine refused a request."""

    CONTEXT_OVERFLOW = "context_overflow"
    INVALID_ARGUMENT = "invalid_argument"
    UNSUPPORTED_SKILL = "unsupported_skill"


class RequestInvalid(Exception):
    """The model cannot run this request; no other request is affected."""

    def __init__(self, message: str, refusal: Refusal = Refusal.INVALID_ARGUMENT) -> None:
        super().__init__(message)
        self.refusal = refusal


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
