"""From a job's events to the texts of `TEXT_OUTPUT`: Moondream's JSON, in one response or in many."""

from collections.abc import AsyncGenerator

import msgspec

from stoop.gateway.moondream_answer import Chunks, whole_answer
from stoop.gateway.pieces import Pieces
from stoop_schemas.result import Result

__all__ = ["texts_of", "whole_text"]


def whole_text(result: Result, request_id: str, *, asked: str) -> str:
    """Return the JSON text of the only response to a request for the skill `asked`. It has no `completed`."""
    return msgspec.json.encode(whole_answer(request_id, result, asked=asked)).decode()


async def texts_of(pieces: Pieces, request_id: str, *, asked: str, stream: bool = True) -> AsyncGenerator[str, None]:
    """Yield the JSON texts of the responses to a request for the skill `asked`.

    With `stream` they are chunks, of which only the last is `completed`; without it there is one, the whole answer. A
    client may stop reading at the first text whose `completed` is not false. Raises `StoopError` and `ApiError`.
    """
    chunks = Chunks(request_id, asked=asked)
    while pieces.result is None:
        for piece in await pieces.next():
            if stream:
                for text in chunks.piece(piece):
                    yield text
    if not stream:
        yield whole_text(pieces.result, request_id, asked=asked)
        return
    for text in chunks.ending(pieces.result):
        yield text
