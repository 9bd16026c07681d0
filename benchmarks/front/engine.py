"""The engine of `benchmarks.front.run`: answers every request at once with the checksum of its pixels."""

import zlib
from collections.abc import Sequence

from benchmarks.instant_engine import InstantEngine
from stoop_worker.engine.request import Deliver, Finished, FinishReason, Output, Request, Usage
from stoop_worker.engine_process.protocol import EngineSettings, Ready
from stoop_worker.engine_process.server import serve_engine
from stoop_worker.images import CropGeometry

__all__ = ["Checksums"]

_USAGE = Usage(730, 1, 0, prefill_time_ms=0.0, decode_time_ms=0.0, ttft_ms=0.0)


class Checksums(InstantEngine):
    """Answers with the checksum of the image."""

    def outputs(self, request: Request) -> Sequence[Output]:
        """Return the checksum of the request's one image."""
        (image,) = request.media
        return [Finished(request.id, FinishReason.STOP, _USAGE, text=str(zlib.crc32(image.pixels.data)))]


def _build(settings: EngineSettings, deliver: Deliver, on_loading: object) -> tuple[Checksums, Ready]:
    # images come whole, as on a GPU
    return Checksums(deliver), Ready(settings.model, "checksums", CropGeometry(), device="cuda")


if __name__ == "__main__":
    serve_engine(_build)
