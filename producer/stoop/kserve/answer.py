"""From a job's events to the texts of `TEXT_OUTPUT`: Moondream's JSON, in one response or in many."""

from collections.abc import AsyncGenerator

import msgspec

from stoop.gateway.moondream_answer import Chunks, whole_answer
from stoop.gateway.pieces import Pieces

__all__ = ["texts_of"]


async def texts_of(pieces: Pieces, request_id: str, *, asked: str, stream: bool) -> AsyncGenerator[str, None]:
    """Yield the JSON texts of the responses to a request for the skill `asked`.

    With `stream` they are chunks, of which only the last is `completed`; without it there is one, the whole answer, and
    it has no `completed`. A client may stop reading at the first text whose `completed` is not false. Raises
    `StoopError` and `ApiError`.
    """
    chunks = Chunks(request_id, asked=asked)
    while True:
        found = await pieces.next()
        for piece in found if stream else ():
            for text in chunks.piece(piece):
                yield text
        if pieces.result is None:
            continue
        if not stream:
            yield msgspec.json.encode(whole_answer(request_id, pieces.result, asked=asked)).decode()
            return
        for text in chunks.ending(pieces.result):
            yield text
        return
