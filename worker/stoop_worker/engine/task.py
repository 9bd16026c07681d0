"""The tasks that a request may ask for, one class for each skill; `request.py` names them all."""

from dataclasses import dataclass
from datetime import date
from enum import Enum, StrEnum, auto

__all__ = [
    "Caption",
    "Chat",
    "Detect",
    "Embed",
    "Gaze",
    "Message",
    "Part",
    "Point",
    "Query",
    "Rerank",
    "SpatialRef",
    "Task",
    "Transcribe",
    "VectorKind",
]

SpatialRef = tuple[float, ...]
"""A point (x, y) or a box (x_min, y_min, x_max, y_max), as fractions of the image."""


@dataclass(frozen=True, slots=True)
class Query:
    """Answer a question, about the image if the request has one; without `reasoning` the model's default applies."""

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
    """Find the centres of an object; `spatial_refs` are the places that the request is about."""

    object: str
    spatial_refs: tuple[SpatialRef, ...] = ()


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
    """Write the next message of a chat. A model that uses today's date gets `today`, unless it is None."""

    messages: tuple[Message, ...]
    today: date | None = None


class VectorKind(StrEnum):
    """The kinds of vectors of a text: one vector, a weight for each of its token ids, or a vector for each token."""

    DENSE = "dense"
    SPARSE = "sparse"
    COLBERT = "colbert"


@dataclass(frozen=True, slots=True)
class Embed:
    """Turn each text into vectors of the `kinds`.

    `prompt_name` chooses one of the model's prompts, which goes before each text. `dimensions` shortens the vectors of
    a model that allows it. With `truncate` a text that is too long loses its end; without it the request is refused.
    """

    texts: tuple[str, ...]
    prompt_name: str | None = None
    dimensions: int | None = None
    truncate: bool = False
    kinds: tuple[VectorKind, ...] = (VectorKind.DENSE,)


@dataclass(frozen=True, slots=True)
class Rerank:
    """Score how well each document answers the query; with `truncate` a document that is too long loses its end."""

    query: str
    documents: tuple[str, ...]
    truncate: bool = False


@dataclass(frozen=True, slots=True)
class Transcribe:
    """Transcribe the speech in one window of 30 seconds, or translate it into English.

    `language` is a code such as `en`; the model detects it if it is None. The model continues from `history`, the ids
    of earlier windows, and before these from the user's `prompt`; both lose their beginning if they are too long.
    `timestamps` cuts the text into segments with times; `words` also gives each word its times. The last word before
    the window ended `pause` seconds before it: a first word that takes in a long pause is shortened.
    """

    language: str | None = None
    translate: bool = False
    prompt: str | None = None
    history: tuple[int, ...] = ()
    timestamps: bool = True
    words: bool = False
    pause: float = 0.0


Task = Query | Caption | Detect | Point | Gaze | Chat | Embed | Rerank | Transcribe
