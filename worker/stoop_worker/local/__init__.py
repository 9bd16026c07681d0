"""The engine without a queue, for notebooks, scripts and tests: one process, no Redis, no object store.

    async with LocalEngine("moondream2") as engine:
        print(await engine.query("photo.jpg", "How many people?"))

The methods, their arguments, answers and streams are those of the client, `stoop.AsyncClient`, so the same code runs
against a queue when this one line names the client.

engine.py          `LocalEngine`
job.py             the job of a request, whose image is passed beside it
images.py          a path, bytes, a Pillow image or an array as the engine's input
outputs.py         brings the outputs from the engine's thread to the callers
command_engine.py  the engine of `stoop schedule --local`
stream.py          the text of an answer, piece by piece
speech.py          a recording, and its segments as they come
speech_methods.py  the methods for recordings
"""

from stoop_worker.local.engine import LocalEngine
from stoop_worker.local.speech import LocalSegments
from stoop_worker.local.stream import LocalText

__all__ = ["LocalEngine", "LocalSegments", "LocalText"]
