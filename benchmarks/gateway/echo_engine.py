"""An engine that answers every question at once, word by word: `python -m benchmarks.gateway.echo_engine`."""

from collections.abc import Sequence

from benchmarks.instant_engine import InstantEngine
from stoop_worker.engine.request import Deliver, Finished, FinishReason, Output, Query, Request, TextDelta, Usage
from stoop_worker.engine_process.protocol import EngineSettings, Ready
from stoop_worker.engine_process.server import serve_engine
from stoop_worker.images import CropGeometry

__all__ = ["Echo"]

_USAGE = Usage(1, 1, 0, prefill_time_ms=0.0, decode_time_ms=0.0, ttft_ms=0.0)


class Echo(InstantEngine):
    """Answers with the words of the question, one line at a time."""

    def outputs(self, request: Request) -> Sequence[Output]:
        """Return the lines of the question as pieces, and the whole."""
        text = request.task.question if isinstance(request.task, Query) else "echo"
        pieces = [TextDelta(request.id, line) for line in text.splitlines(keepends=True)]
        return [*pieces, Finished(request.id, FinishReason.STOP, _USAGE, text=text)]


def _build(settings: EngineSettings, deliver: Deliver, on_loading: object) -> tuple[Echo, Ready]:
    return Echo(deliver), Ready(settings.model, "echo", CropGeometry())


if __name__ == "__main__":
    serve_engine(_build)
