"""An engine child that hears tones: `python -m tests.support.speech_child`.

A window is answered by the number of its loudest mel band, so its text depends on the sound. A silent window has
`no_speech` near 1. The prompt `until FILE` keeps every window after the first waiting until there is a FILE, and `die`
kills the process. Everything else is as in `tests.support.scripted_child`.
"""

import os
import signal
from pathlib import Path

import numpy as np

from stoop_worker.audio import Mel, MelGeometry
from stoop_worker.engine.request import (
    Deliver,
    Finished,
    FinishReason,
    Request,
    Segment,
    Transcribe,
    Usage,
    Window,
    Word,
)
from stoop_worker.engine_process.protocol import EngineSettings, Ready
from stoop_worker.engine_process.server import serve_engine
from tests.support.scripted_child import ScriptedLoop

__all__ = ["SpeechLoop", "heard"]

_USAGE = Usage(4, 3, 0, prefill_time_ms=1.0, decode_time_ms=1.0, ttft_ms=1.0)


def heard(mel: Mel, task: Transcribe) -> Window:
    """The transcript of one window."""
    content = mel.frames[:, : mel.content]
    silent = float(np.median(content.max(axis=0))) < 0  # a tone is far above that, and silence is at the floor
    band = int(content.mean(axis=1).argmax())
    text = f" The loudest band is {band}." if task.translate else f" Band {band}."
    end = mel.content / 100
    words = tuple(Word(f" {word}", n / 4, (n + 1) / 4, 0.5) for n, word in enumerate(text.split()))
    return Window(
        language=task.language or "de",
        language_probability=1.0,
        text=text,
        tokens=(band,),
        average_logprob=-2.0 if silent else -0.25,
        no_speech=0.95 if silent else 0.05,
        compression_ratio=1.0,
        segments=(Segment(0.0, end, text, (band,)),),
        words=words if task.words else (),
        advance=30.0,
    )


class SpeechLoop(ScriptedLoop):
    """A scripted loop for recordings."""

    def __init__(self, deliver: Deliver) -> None:
        super().__init__(deliver)
        self._waiting: dict[str, tuple[Path, Request]] = {}

    def _take(self, message: Request | str) -> None:
        match message:
            case Request(task=Transcribe(prompt="die")):
                os.kill(os.getpid(), signal.SIGKILL)
            case Request(task=Transcribe(prompt=str(prompt), history=history)) if prompt.startswith("until "):
                self._inside.add(message.id)
                if history:
                    self._waiting[message.id] = (Path(prompt.removeprefix("until ")), message)
                else:
                    self._answer(message)
            case Request(task=Transcribe()):
                self._inside.add(message.id)
                self._answer(message)
            case _:
                super()._take(message)

    def _turn(self) -> None:
        super()._turn()
        for request_id, (gate, request) in list(self._waiting.items()):
            if request_id not in self._inside:
                del self._waiting[request_id]
            elif gate.exists():
                del self._waiting[request_id]
                self._answer(request)

    def _answer(self, request: Request) -> None:
        (mel,) = request.media
        assert isinstance(mel, Mel) and isinstance(request.task, Transcribe)
        self._inside.discard(request.id)
        window = heard(mel, request.task)
        self._deliver([Finished(request.id, FinishReason.STOP, _USAGE, text=window.text, window=window)])


def _build(settings: EngineSettings, deliver: Deliver, on_loading: object) -> tuple[SpeechLoop, Ready]:
    return SpeechLoop(deliver), Ready("speech", "digest", MelGeometry(80), skills=("transcribe",))


if __name__ == "__main__":
    serve_engine(_build)
