"""Turns a job's events into the texts of `TEXT_OUTPUT`: Moondream's JSON, in one response or in many."""

from collections.abc import AsyncGenerator

import msgspec

from stoop.gateway.moondream_answer import Chunks, whole_answer
from stoop.gateway.pieces import Pieces
from stoop_schemas.result import Result

__all__ = ["texts_of", "whole_text"]


def whole_text(result: Result, request_id: str, *, asked: str) -> str:
    """Return the JSON text of the only response to a request for the skill `asked`. It has no `completed`."""
    return msgspec.json.encode(whole_answer(request_id, result, asked=asked)).decode()


async def texts_of(pieces: Pieces, request_id: str, *, asked: str) -> AsyncGenerator[str, None]:
    """Yield the JSON texts of a streamed request for the skill `asked`: chunks, of which the last is `completed`.

    A client may stop reading at the first text whose `completed` is not false. Raises `StoopError` and `ApiError`.
    """
    chunks = Chunks(request_id, asked=asked)
    while pieces.result is None:
        for piece in await pieces.next():
            for text in chunks.piece(piece):
                yield text
    for text in chunks.ending(pieces.result):
        yield text
