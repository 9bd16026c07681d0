"""An engine child that follows the script in each request, without a model: `python -m tests.support.scripted_child`.

The question of a query is its script:

    die        the process kills itself        fault    the loop ends with an exception
    hang       the loop stands still           wait     never ends, unless it is aborted
    sleep S    is answered after S seconds     …        anything else is answered at once, by itself

A caption is answered by a checksum of its crops' pixels. Everything else is answered by nothing. `--unfit` as an
argument makes an engine that cannot be built, `--stillborn` a process that ends before its engine is ready, and
`--stillborn-after FILE` one that does so as soon as there is a FILE (which it makes when it starts).
"""

import heapq
import os
import signal
import sys
import time
import zlib
from collections import deque
from collections.abc import Callable
from pathlib import Path
from threading import Condition, Event, Thread

from stoop_worker.engine.request import (
    Aborted,
    Caption,
    Deliver,
    Finished,
    FinishReason,
    Output,
    Query,
    Request,
    TextDelta,
    Usage,
)
from stoop_worker.engine_process.protocol import EngineSettings, Loading, Ready
from stoop_worker.engine_process.server import serve_engine
from stoop_worker.errors import ConfigError
from stoop_worker.images import CropGeometry

__all__ = ["ScriptedLoop", "checksum"]

_IDLE_SECONDS = 0.02
_USAGE = Usage(1, 1, 0, prefill_time_ms=1.0, decode_time_ms=1.0, ttft_ms=1.0)


def checksum(request: Request) -> str:
    """The answer to a caption."""
    return str(zlib.crc32(b"".join(media.pixels.tobytes() for media in request.media))) if request.media else "none"


class ScriptedLoop:
    """A loop in a thread, as the engine's own; `deliver` is called in it."""

    def __init__(self, deliver: Deliver) -> None:
        self.progress = 0
        self.alive = True
        self.fault: Exception | None = None
        self.figures: dict[str, float] = {}
        self._deliver = deliver
        self._changed = Condition()
        self._mailbox: deque[Request | str] = deque()
        self._asleep: list[tuple[float, str]] = []
        self._inside: set[str] = set()
        self._stopping = False
        self._thread = Thread(target=self._loop, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping = True
        self._thread.join()

    def submit(self, request: Request) -> None:
        self._put(request)

    def abort(self, request_id: str) -> None:
        self._put(request_id)

    def _put(self, message: Request | str) -> None:
        with self._changed:
            self._mailbox.append(message)
            self._changed.notify()

    def _loop(self) -> None:
        try:
            while not self._stopping:
                self._turn()
        except RuntimeError as error:
            self.fault = error
        finally:
            self.alive = False

    def _turn(self) -> None:
        with self._changed:
            if not self._mailbox:
                self._changed.wait(_IDLE_SECONDS)
            messages = list(self._mailbox)
            self._mailbox.clear()
        self.progress += 1
        for message in messages:
            self._take(message)
        while self._asleep and self._asleep[0][0] <= time.monotonic():
            self._end(heapq.heappop(self._asleep)[1], "slept")

    def _take(self, message: Request | str) -> None:
        if isinstance(message, str):
            if message in self._inside:
                self._inside.discard(message)
                self._deliver([Aborted(message)])
            return
        self._inside.add(message.id)
        match message.task:
            case Query(question="die"):
                os.kill(os.getpid(), signal.SIGKILL)
            case Query(question="fault"):
                raise RuntimeError("as the script says")
            case Query(question="hang"):
                Event().wait()
            case Query(question="wait"):
                self._deliver([TextDelta(message.id, "waiting")])
            case Query(question=question) if question.startswith("sleep "):
                heapq.heappush(self._asleep, (time.monotonic() + float(question.split()[1]), message.id))
            case Query(question=question):
                self._end(message.id, question)
            case Caption():
                self._end(message.id, checksum(message))
            case _:
                self._end(message.id, "")

    def _end(self, request_id: str, text: str) -> None:
        if request_id not in self._inside:
            return  # it was aborted
        self._inside.discard(request_id)
        outputs: list[Output] = [TextDelta(request_id, text)] if text else []
        self._deliver([*outputs, Finished(request_id, FinishReason.STOP, _USAGE, text=text)])


def _build(
    settings: EngineSettings, deliver: Deliver, on_loading: Callable[[Loading], None]
) -> tuple[ScriptedLoop, Ready]:
    if "--unfit" in sys.argv:
        raise ConfigError(f"{settings.model} is not fit")
    if "--stillborn" in sys.argv:
        sys.exit(3)
    if "--stillborn-after" in sys.argv:
        path = Path(sys.argv[sys.argv.index("--stillborn-after") + 1])
        if path.exists():
            sys.exit(3)
        path.touch()
    on_loading(Loading(3_250_000_000, 18_500_000_000))
    return ScriptedLoop(deliver), Ready("scripted", "digest", CropGeometry(), skills=("query",))


if __name__ == "__main__":
    serve_engine(_build)
