"""An engine that answers every question at once, word by word: `python -m benchmarks.gateway.echo_engine`."""

from collections.abc import Mapping

from stoop_worker.engine.request import (
    Aborted,
    Deliver,
    Finished,
    FinishReason,
    Output,
    Query,
    Request,
    TextDelta,
    Usage,
)
from stoop_worker.engine_process.protocol import EngineSettings, Ready
from stoop_worker.engine_process.server import serve_engine
from stoop_worker.images import CropGeometry

__all__ = ["Echo"]

_USAGE = Usage(1, 1, 0, prefill_time_ms=0.0, decode_time_ms=0.0, ttft_ms=0.0)


class Echo:
    """An engine without a loop: it answers within `submit`, with the words of the question."""

    fault: Exception | None = None
    figures: Mapping[str, float] = {}

    def __init__(self, deliver: Deliver) -> None:
        self.progress = 0
        self.alive = True
        self._deliver = deliver

    def start(self) -> None:
        """Do nothing; there is no loop."""

    def stop(self) -> None:
        self.alive = False

    def submit(self, request: Request) -> None:
        self.progress += 1
        text = request.task.question if isinstance(request.task, Query) else "echo"
        words = [TextDelta(request.id, word) for word in text.splitlines(keepends=True)]
        self._deliver([*words, Finished(request.id, FinishReason.STOP, _USAGE, text=text)])

    def abort(self, request_id: str) -> None:
        outputs: list[Output] = [Aborted(request_id)]
        self._deliver(outputs)


def _build(settings: EngineSettings, deliver: Deliver) -> tuple[Echo, Ready]:
    return Echo(deliver), Ready(settings.model, "echo", CropGeometry())


if __name__ == "__main__":
    serve_engine(_build)
