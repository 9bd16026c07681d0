"""The engine of `benchmarks.front`: answers every request at once by the checksum of its pixels."""

import zlib
from collections.abc import Mapping

from worker.engine.request import Aborted, Deliver, Finished, FinishReason, Output, Request, Usage
from worker.engine_process.border import EngineSettings, Ready
from worker.engine_process.serving import serve_engine
from worker.images import CropGeometry

__all__ = ["Checksums"]

_USAGE = Usage(730, 1, 0, prefill_time_ms=0.0, decode_time_ms=0.0, ttft_ms=0.0)


class Checksums:
    """An engine without a loop: it answers within `submit`."""

    fault: Exception | None = None
    figures: Mapping[str, float] = {}

    def __init__(self, deliver: Deliver) -> None:
        self.steps = 0
        self.alive = True
        self._deliver = deliver

    def start(self) -> None:
        """Nothing is to be started."""

    def stop(self) -> None:
        self.alive = False

    def submit(self, request: Request) -> None:
        assert request.image is not None, "each job has an image"
        self.steps += 1
        text = str(zlib.crc32(request.image.pixels.data))
        self._deliver([Finished(request.id, FinishReason.STOP, _USAGE, text=text)])

    def abort(self, request_id: str) -> None:
        said: list[Output] = [Aborted(request_id)]
        self._deliver(said)


def _build(settings: EngineSettings, deliver: Deliver) -> tuple[Checksums, Ready]:
    # as on a GPU: images come whole
    return Checksums(deliver), Ready(settings.model, "checksums", CropGeometry(), device="cuda")


if __name__ == "__main__":
    serve_engine(_build)
