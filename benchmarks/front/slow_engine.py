"""The engine of `benchmarks.front.memory`: holds images as on a GPU, and ends one request after the other."""

import os
import time
from queue import SimpleQueue
from threading import Thread

from benchmarks.instant_engine import InstantEngine
from stoop_worker.engine.request import Deliver, Finished, FinishReason, Request, Usage
from stoop_worker.engine_process.protocol import EngineSettings, Ready
from stoop_worker.engine_process.server import serve_engine
from stoop_worker.images import CropGeometry

__all__ = ["SlowEngine"]

_SECONDS = float(os.environ.get("SLOW_ENGINE_SECONDS", "0.1"))  # for each request
_USAGE = Usage(730, 1, 0, prefill_time_ms=0.0, decode_time_ms=0.0, ttft_ms=0.0)


class SlowEngine(InstantEngine):
    """Ends requests in order of arrival, each with the sum of some of its pixels."""

    def __init__(self, deliver: Deliver) -> None:
        super().__init__(deliver)
        self._waiting: SimpleQueue[Request] = SimpleQueue()

    def start(self) -> None:
        Thread(target=self._end_all, daemon=True).start()

    def submit(self, request: Request) -> None:
        self._waiting.put(request)

    def _end_all(self) -> None:
        while self.alive:
            self._end(self._waiting.get())

    def _end(self, request: Request) -> None:
        [image] = request.media
        time.sleep(_SECONDS)
        self.progress += 1
        checksum = str(int(image.pixels[::97].sum()))
        self._deliver([Finished(request.id, FinishReason.STOP, _USAGE, text=checksum)])


def _build(settings: EngineSettings, deliver: Deliver, on_loading: object) -> tuple[SlowEngine, Ready]:
    # images come whole, as on a GPU
    return SlowEngine(deliver), Ready(settings.model, "slow", CropGeometry(), device="cuda")


if __name__ == "__main__":
    serve_engine(_build)
