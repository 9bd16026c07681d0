"""The engine of `benchmarks.front.run`: answers every request at once with the checksum of its pixels."""

import zlib
from collections.abc import Mapping

from stoop_worker.engine.request import Aborted, Deliver, Finished, FinishReason, Output, Request, Usage
from stoop_worker.engine_process.protocol import EngineSettings, Ready
from stoop_worker.engine_process.server import serve_engine
from stoop_worker.images import CropGeometry

__all__ = ["Checksums"]

_USAGE = Usage(730, 1, 0, prefill_time_ms=0.0, decode_time_ms=0.0, ttft_ms=0.0)


class Checksums:
    """An engine without a loop: it answers within `submit`."""

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
        (image,) = request.media  # each job has one
        self.progress += 1
        text = str(zlib.crc32(image.pixels.data))
        self._deliver([Finished(request.id, FinishReason.STOP, _USAGE, text=text)])

    def abort(self, request_id: str) -> None:
        outputs: list[Output] = [Aborted(request_id)]
        self._deliver(outputs)


def _build(settings: EngineSettings, deliver: Deliver) -> tuple[Checksums, Ready]:
    # images come whole, as on a GPU
    return Checksums(deliver), Ready(settings.model, "checksums", CropGeometry(), device="cuda")


if __name__ == "__main__":
    serve_engine(_build)
