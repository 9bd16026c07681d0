"""An engine that takes a set time for each request: `python -m benchmarks.queue.timed_engine`.

The variable TIMED_ENGINE has a `Service` as JSON.
"""

import heapq
import json
import os
import re
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import count

from benchmarks.instant_engine import InstantEngine
from stoop_worker.engine.request import Deliver, Finished, FinishReason, Output, Query, Request, TextDelta, Usage
from stoop_worker.engine_process.protocol import EngineSettings, Ready
from stoop_worker.engine_process.server import serve_engine
from stoop_worker.images import CropGeometry

__all__ = ["ANSWER", "Service", "TimedEngine", "long_question", "question"]

ANSWER = (
    "Three people sit around a wooden table in a bright kitchen. One of them pours coffee into a white cup, and the"
    " others look at a map that covers half of the table. A dog sleeps under the window, next to a red bag."
)
_WORDS = ANSWER.split(" ")
_USAGE = Usage(740, len(_WORDS), 0, prefill_time_ms=20.0, decode_time_ms=400.0, ttft_ms=30.0)
_VARIABLE = "TIMED_ENGINE"
_ASKED = re.compile(r"What happens for ([0-9.]+) s")
_LONG = re.compile(r"Answer ([0-9]+) times")


@dataclass(frozen=True)
class Service:
    """The work of an engine: at most `slots` requests at once, in their order of arrival.

    A request takes `seconds`, unless its question sets another time: see `question`.
    """

    seconds: float
    slots: int = 64

    @property
    def environment(self) -> dict[str, str]:
        """The variable with which an engine's process gets this service."""
        return {_VARIABLE: json.dumps(asdict(self))}

    @classmethod
    def read(cls) -> "Service":
        """Return the service that the environment names."""
        return cls(**json.loads(os.environ[_VARIABLE]))

    def time_of(self, request: Request) -> float:
        """Return the seconds that a request takes."""
        asked = _ASKED.match(request.task.question) if isinstance(request.task, Query) else None
        return float(asked[1]) if asked else self.seconds


def question(seconds: float) -> str:
    """Return a question that takes a time of its own."""
    return f"What happens for {seconds:.4f} s?"


def long_question(times: int) -> str:
    """Return a question that the engine answers with `ANSWER`, repeated `times` times."""
    return f"Answer {times} times."


def _text(request: Request) -> str:
    asked = _LONG.match(request.task.question) if isinstance(request.task, Query) else None
    return " ".join([ANSWER] * int(asked[1])) if asked else ANSWER


class TimedEngine(InstantEngine):
    """Answers each request with the words of `ANSWER`, spread evenly over the request's time."""

    def __init__(self, deliver: Deliver, service: Service) -> None:
        super().__init__(deliver)
        self._service, self._slots = service, service.slots
        self._order = count()
        self._waiting: list[tuple[int, int, Request]] = []
        self._due: list[tuple[float, int, Output]] = []
        self._changed = threading.Condition()

    def start(self) -> None:
        threading.Thread(target=self._run, daemon=True, name="timed engine").start()

    def submit(self, request: Request) -> None:
        with self._changed:
            heapq.heappush(self._waiting, (request.priority, next(self._order), request))
            self._begin(time.monotonic())
            self._changed.notify()

    def _begin(self, now: float) -> None:
        """Begin as many requests as there are slots, and put their outputs among those that are due."""
        while self._slots and self._waiting:
            self._slots -= 1
            request = heapq.heappop(self._waiting)[2]
            step = self._service.time_of(request) / len(_WORDS)
            pieces: list[Output] = [TextDelta(request.id, f"{word} ") for word in _WORDS]
            pieces.append(Finished(request.id, FinishReason.STOP, _USAGE, text=_text(request)))
            for number, piece in enumerate(pieces):
                at = now + step * min(number + 1, len(_WORDS))
                heapq.heappush(self._due, (at, next(self._order), piece))

    def _run(self) -> None:
        while self.alive:
            with self._changed:
                ended = self._take_due()
                if not ended:
                    self._changed.wait(self._due[0][0] - time.monotonic() if self._due else None)
                    continue
                self.progress += 1
            self._deliver(ended)

    def _take_due(self) -> Sequence[Output]:
        now, taken = time.monotonic(), []
        while self._due and self._due[0][0] <= now:
            at, _, output = heapq.heappop(self._due)
            taken.append(output)
            if isinstance(output, Finished):
                self._slots += 1
                self._begin(at)
        return taken


def _build(settings: EngineSettings, deliver: Deliver, on_loading: object) -> tuple[TimedEngine, Ready]:
    return TimedEngine(deliver, Service.read()), Ready(settings.model, "timed", CropGeometry())


if __name__ == "__main__":
    serve_engine(_build)
