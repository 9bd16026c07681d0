"""The engine of the benchmarks of the front: answers with the checksum of its image's bytes.

It answers at once or at a steady rate: the variable FRONT_ENGINE_RATE has the answers a second, or 0. At a steady rate
it gives as many answers at a time as FRONT_ENGINE_TOGETHER says, as an engine does whose step encodes several images.
"""

import os
import time
import zlib
from collections.abc import Sequence
from queue import SimpleQueue
from threading import Thread

from benchmarks.instant_engine import InstantEngine
from stoop_worker.engine.request import Deliver, Finished, FinishReason, Output, Request, Usage
from stoop_worker.engine_process.pixels import bytes_of
from stoop_worker.engine_process.protocol import EngineSettings, Ready
from stoop_worker.engine_process.server import serve_engine

__all__ = ["Checksums", "SteadyChecksums"]

_USAGE = Usage(730, 1, 0, prefill_time_ms=0.0, decode_time_ms=0.0, ttft_ms=0.0)


class Checksums(InstantEngine):
    """Answers with the checksum of the image."""

    def outputs(self, request: Request) -> Sequence[Output]:
        """Return the checksum of the request's one image."""
        (image,) = request.media
        return [Finished(request.id, FinishReason.STOP, _USAGE, text=str(zlib.crc32(bytes_of(image).data)))]


class SteadyChecksums(Checksums):
    """Answers at `rate` requests a second, in their order of arrival, at most `together` at a time."""

    def __init__(self, deliver: Deliver, rate: float, together: int) -> None:
        super().__init__(deliver)
        self._rate = rate
        self._together = together
        self._waiting: SimpleQueue[Request] = SimpleQueue()

    def start(self) -> None:
        Thread(target=self._answer_all, daemon=True).start()

    def submit(self, request: Request) -> None:
        self._waiting.put(request)

    def _answer_all(self) -> None:
        due = 0.0
        while self.alive:
            step = [self._waiting.get()]
            while len(step) < self._together and not self._waiting.empty():
                step.append(self._waiting.get())
            due = max(due + len(step) / self._rate, time.perf_counter())
            time.sleep(max(0.0, due - time.perf_counter()))
            self.progress += 1
            self._deliver([output for request in step for output in self.outputs(request)])


def _build(settings: EngineSettings, deliver: Deliver, on_loading: object) -> tuple[Checksums, Ready]:
    rate = float(os.environ.get("FRONT_ENGINE_RATE", "0"))
    together = int(os.environ.get("FRONT_ENGINE_TOGETHER", "1"))
    engine = SteadyChecksums(deliver, rate, together) if rate else Checksums(deliver)
    return engine, Ready(settings.model, "checksums", None, device="cuda")  # whole images, as for a GPU


if __name__ == "__main__":
    serve_engine(_build)
