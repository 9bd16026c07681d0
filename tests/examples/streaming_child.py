"""An engine child that sends its answers word by word: `python -m tests.examples.streaming_child`.

The question `tell N` is answered by N numbered words, one a step; `tell N until FILE` stops in the middle until there
is a FILE. The last message of a chat may be the same; any other is answered by the counts of its messages and images.
Everything else is as in `tests.support.scripted_child`.
"""

from collections.abc import Iterator
from pathlib import Path

from stoop_worker.engine.request import Chat, Deliver, Finished, FinishReason, Message, Query, Request, TextDelta, Usage
from stoop_worker.engine_process.protocol import EngineSettings, Ready
from stoop_worker.engine_process.server import serve_engine
from stoop_worker.images import CropGeometry
from tests.support.scripted_child import ScriptedLoop

__all__ = ["StreamingLoop", "words"]

_USAGE = Usage(1, 1, 0, prefill_time_ms=1.0, decode_time_ms=1.0, ttft_ms=1.0)
_DONE = object()


def words(count: int) -> list[str]:
    """Return the words that answer `tell COUNT`; join them without a separator."""
    return ["word-0", *(f" word-{i}" for i in range(1, count))]


class StreamingLoop(ScriptedLoop):
    """A scripted loop with answers that take many steps."""

    def __init__(self, deliver: Deliver) -> None:
        super().__init__(deliver)
        self._answers: dict[str, Iterator[None]] = {}

    def _take(self, message: Request | str) -> None:
        match message:
            case Request(task=Query(question=text) | Chat(messages=(*_, Message(content=(*_, str(text)))))) if (
                text.startswith("tell ")
            ):
                self._inside.add(message.id)
                self._answers[message.id] = self._answer(message.id, text.split())
            case Request(task=Chat(messages=messages)):
                self._inside.add(message.id)
                self._end(message.id, f"{len(messages)} messages, {len(message.media)} images")
            case _:
                super()._take(message)

    def _turn(self) -> None:
        super()._turn()
        for request_id, answer in list(self._answers.items()):
            if request_id not in self._inside or next(answer, _DONE) is _DONE:
                del self._answers[request_id]

    def _answer(self, request_id: str, script: list[str]) -> Iterator[None]:
        pieces = words(int(script[1]))
        for i, word in enumerate(pieces):
            while i == len(pieces) // 2 and "until" in script and not Path(script[-1]).exists():
                yield
            self._deliver([TextDelta(request_id, word)])
            yield
        self._inside.discard(request_id)
        self._deliver([Finished(request_id, FinishReason.STOP, _USAGE, text="".join(pieces))])


def _build(settings: EngineSettings, deliver: Deliver, on_loading: object) -> tuple[StreamingLoop, Ready]:
    return StreamingLoop(deliver), Ready("streaming", "digest", CropGeometry(), skills=("query", "caption", "chat"))


if __name__ == "__main__":
    serve_engine(_build)
