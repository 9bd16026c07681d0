"""The answer of a job in Moondream's shape, whole or in chunks. All protocols that offer Moondream's answers use it."""

from collections.abc import Iterable
from typing import Any

import msgspec

from stoop.client.build_job import answer
from stoop.gateway.pieces import Piece
from stoop_schemas.result import Result

__all__ = ["Chunks", "MoondreamAnswer", "whole_answer"]


class MoondreamAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer of a skill: one of `answer`, `caption`, `objects`, `points` and `gaze`.

    `gaze` is null if the person looks at nothing in the image.
    """

    request_id: str
    job_id: str
    finish_reason: str
    metrics: dict[str, float]
    answer: str | None = None
    caption: str | None = None
    objects: list[dict[str, float]] | None = None
    points: list[dict[str, float]] | None = None
    gaze: dict[str, float] | None = None
    reasoning: dict[str, Any] | None = None


def _metrics_of(result: Result) -> dict[str, float]:
    """Return the cost of the job: tokens, and times in milliseconds."""
    return {name: getattr(result.metrics, name) for name in result.metrics.__struct_fields__}


def whole_answer(request_id: str, result: Result, *, asked: str = "") -> dict[str, Any]:
    """Return the answer of a completed job in Moondream's shape; if `asked` is "point", a gaze as points."""
    found = answer(result)
    if asked == "point" and "gaze" in found:
        found = {"points": [found["gaze"]] if found["gaze"] else []}
    return {
        "request_id": request_id,
        "job_id": result.id,
        **found,
        "finish_reason": result.finish_reason or "stop",
        "metrics": _metrics_of(result),
    }


class Chunks:
    """The texts of a stream: pieces as `chunk`, and the whole answer with the last one, which is `completed`."""

    def __init__(self, request_id: str, *, asked: str = "") -> None:
        self._request_id = request_id
        self._asked = asked
        self._index = 0

    def opening(self) -> Iterable[str]:
        """Return nothing: the first piece opens the stream."""
        return ()

    def piece(self, piece: Piece) -> Iterable[str]:
        """Return the JSON of one piece; `token_index` counts the pieces of the answer from 0."""
        if piece.kind == "reasoning":
            yield _json({"reasoning_chunk": piece.text})
            return
        yield _json({"chunk": piece.text, "completed": False, "token_index": self._index})
        self._index += 1

    def ending(self, result: Result) -> Iterable[str]:
        """Return the JSON of the whole answer."""
        yield _json({"chunk": "", "completed": True, **whole_answer(self._request_id, result, asked=self._asked)})


def _json(value: dict[str, Any]) -> str:
    return msgspec.json.encode(value).decode()
