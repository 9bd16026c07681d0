"""The workload of one long recording: from the bytes of its file to the last segment, windows in parallel.

It takes the parts of a worker beneath the queue: the decoder, the pipeline and the engine's thread. The decoder is in
a process of its own, because a worker's engine is: two busy threads of one process would wait for each other. The
details of a figure have the seconds of each stage alone: decoding, decoding with features, the encoder over all
windows, and the engine with all windows decoded before it starts.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Final

import numpy as np
import torch

from benchmarks.families.figure import Figure
from benchmarks.families.front_process import FrontProcess
from benchmarks.families.opened import Opened
from stoop_worker.audio import Cutting, Mel, MelGeometry, Recording
from stoop_worker.engine.encoder import Encoder
from stoop_worker.engine.request import Finished, Request, Sampling, Transcribe
from stoop_worker.engine.thread import EngineThread
from stoop_worker.jobs.budget import Budget
from stoop_worker.jobs.part_stream import Found, part_stream
from stoop_worker.jobs.pipelines import Passage, Transcription, Windows, transcribe
from stoop_worker.local.outputs import Outputs

__all__ = ["hour", "recording"]

_PIECE_SECONDS: Final = 100
_PIECES: Final = 36
_TOKENS: Final = 100
_CUTTING: Final = Cutting(in_windows=True)
_FORMATS: Final[Mapping[str, tuple[str, str, int, str]]] = {
    "mp3": ("mp3", "libmp3lame", 44_100, "stereo"),
    "wav": ("wav", "pcm_s16le", 16_000, "mono"),
}
_ROUNDS: Final = 3


def hour(opened: Opened) -> list[Figure]:
    """Time an hour of each format; the figure is the best of three rounds. For a tiny model, time 100 seconds once."""
    figures = []
    pieces, count = (1, 1) if opened.is_tiny else (_PIECES, _ROUNDS)
    for name, form in _FORMATS.items():
        file = recording(*form, pieces)
        with FrontProcess(file, _geometry(opened), _CUTTING) as front:
            rounds = [asyncio.run(_whole(opened, front, f"{name}-{number}")) for number in range(count)]
            alone = _alone(opened, front, name)
        best = min(rounds, key=lambda each: each["seconds"])
        details = {**best, **alone, "rounds": [each["seconds"] for each in rounds]}
        print(f"hour-{name}: " + ", ".join(f"{key} {value}" for key, value in details.items()), flush=True)
        figures.append(Figure(f"hour-{name}", opened.loads[-1], best["seconds"], "s", None, details))
    return figures


def recording(kind: str, codec: str, rate: int, layout: str, pieces: int) -> bytes:
    """Return a file with chirps, pauses and noise of 100 seconds, `pieces` times."""
    from tests.audio.sounds import encoded  # needs PyAV, which the other families do without

    random = np.random.default_rng(1)
    time_S = np.arange(_PIECE_SECONDS * rate) / rate
    voiced_S = (np.sin(5 * time_S) > -0.7) * np.sin(2000 * time_S + 300 * np.sin(3 * time_S))
    channels = 2 if layout == "stereo" else 1
    samples_SC = 9000 * voiced_S[:, None] + 300 * random.standard_normal((len(time_S), channels))
    piece = samples_SC.astype(np.int16).ravel()
    if kind == "mp3":  # files of this format may follow each other
        return pieces * encoded(piece, kind, codec, rate=rate, layout=layout)
    return encoded(np.tile(piece, pieces), kind, codec, rate=rate, layout=layout)


def _geometry(opened: Opened) -> MelGeometry:
    assert not isinstance(opened.model, Encoder)
    assert isinstance(opened.model.spec.preparation, MelGeometry)
    return opened.model.spec.preparation


async def _whole(opened: Opened, front: FrontProcess, name: str) -> dict[str, float]:
    """Decode and transcribe a file; return the seconds until its first and last segments, and until it is decoded."""
    began, times = time.perf_counter(), []
    read: list[float] = []

    def work(found: Found) -> None:
        for part in front.parts():
            found(part)
        read.append(time.perf_counter() - began)

    async with part_stream(lambda found: asyncio.to_thread(work, found)) as stream:
        found = await _transcribe(opened, stream, name, lambda _: times.append(time.perf_counter() - began))
    seconds = time.perf_counter() - began
    if len(found.passages) < found.duration / 31 or found.usage.output_tokens < len(found.passages) * _least(opened):
        raise RuntimeError(f"{len(found.passages)} segments of {found.usage.output_tokens} tokens are too few")
    return {
        "seconds": seconds,
        "first_segment": times[0],
        "read": read[0],
        "segments": len(found.passages),
        "tokens": found.usage.output_tokens,
        "audio_seconds": found.duration,
    }


def _least(opened: Opened) -> int:
    return opened.length(_TOKENS) // 2


async def _transcribe(
    opened: Opened, stream: AsyncIterator[Recording], name: str, report: Callable[[Passage], None]
) -> Transcription:
    """Run a recording's windows on the engine, each to its most tokens: random weights end no text."""
    outputs = Outputs(asyncio.get_running_loop())
    thread = EngineThread(opened.engine, outputs.deliver, outputs.end)

    async def run(request: Request) -> Finished:
        (window,) = request.media  # another one for the cache, which has heard the same in an earlier round
        assert isinstance(window, Mel)
        request = replace(request, media=(replace(window, digest=request.id.encode()),))
        async with aclosing(outputs.follow(thread, request)) as following:
            async for output in following:
                if isinstance(output, Finished):
                    return output
                raise RuntimeError(f"the engine did not run a window: {output}")
        raise AssertionError("a request has an end")

    sampling = Sampling(temperature=0.0, top_p=1.0, max_tokens=opened.length(_TOKENS))
    request = Request(name, Transcribe("en"), sampling=sampling)
    windows = Windows(Budget(opened.loads[-1]), at_once=True)
    thread.start()
    try:
        return await transcribe(request, stream, (0.0,), run=run, report=report, windows=windows)
    finally:
        await asyncio.to_thread(thread.stop)


def _alone(opened: Opened, front: FrontProcess, name: str) -> dict[str, float]:
    """Return the seconds of each stage by itself."""
    began = time.perf_counter()
    front.decode()
    decoded = time.perf_counter()
    ready = list(front.parts())
    read = time.perf_counter()
    asyncio.run(_transcribe(opened, _each_of(ready), f"{name}-alone", lambda _: None))
    heard = time.perf_counter()
    return {
        "decode_alone": decoded - began,
        "decode_and_features_alone": read - decoded,
        "engine_alone": heard - read,
        "encoder_alone": _encoder_seconds(opened, ready),
        "windows": len(ready),
    }


async def _each_of(ready: list[Recording]) -> AsyncIterator[Recording]:
    for part in ready:
        yield part


@torch.inference_mode()
def _encoder_seconds(opened: Opened, ready: list[Recording]) -> float:
    """Return the seconds of encoding all windows, as many together as one step of the engine takes."""
    model = opened.model
    assert not isinstance(model, Encoder)
    windows = [part.window(0, part.count) for part in ready]
    rows = opened.document["max_source_positions"] + 31 & ~31  # the states of a window, in whole pages
    size = min(model.spec.encode_budget, len(windows), 5)
    out_NC = torch.empty(size * rows, model.spec.dim, dtype=model.dtype, device=model.device)
    model.encode(windows[:size], out_NC, lambda: None)
    _synchronise(model.device)
    began = time.perf_counter()
    for start in range(0, len(windows), size):
        some = windows[start : start + size]
        model.encode(some, out_NC[: len(some) * rows], lambda: None)
    _synchronise(model.device)
    return time.perf_counter() - began


def _synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
