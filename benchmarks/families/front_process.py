"""A process that decodes one file as often as it is asked, for `benchmarks.families.hour`."""

import os
from collections.abc import Iterator
from multiprocessing import get_context
from multiprocessing.connection import Connection
from unittest.mock import patch

from stoop_worker.audio import AudioLimits, Cutting, MelGeometry, Recording, decode, parts

__all__ = ["FrontProcess"]


class FrontProcess:
    """`with` starts the process, which has the file from then on, and ends it."""

    def __init__(self, file: bytes, geometry: MelGeometry, cutting: Cutting) -> None:
        spawning = get_context("spawn")
        self._ours, theirs = spawning.Pipe()
        self._process = spawning.Process(target=_serve, args=(theirs, file, geometry, cutting), daemon=True)

    def __enter__(self) -> "FrontProcess":
        with patch.dict(os.environ, OPENBLAS_NUM_THREADS="1"):  # as a worker loads numpy
            self._process.start()
        self.decode()  # which also waits for its imports
        return self

    def __exit__(self, *_: object) -> None:
        self._ours.send(None)
        self._process.join()

    def decode(self) -> None:
        """Decode the file, and wait for the end."""
        self._ours.send("decode")
        self._ours.recv()

    def parts(self) -> Iterator[Recording]:
        """Yield the parts of the file as they are decoded."""
        self._ours.send("parts")
        while (part := self._ours.recv()) is not None:
            yield part


def _serve(pipe: Connection, file: bytes, geometry: MelGeometry, cutting: Cutting) -> None:
    """Answer until the caller sends None."""
    while (asked := pipe.recv()) is not None:
        if asked == "decode":
            decode(file, AudioLimits())
        else:
            for part in parts(file, AudioLimits(), geometry, cutting):
                pipe.send(part)
        pipe.send(None)
