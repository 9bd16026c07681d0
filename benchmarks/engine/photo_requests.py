"""Turns questions about photos into the engine's requests.

A worker loads JPEGs in another process than the engine's, and so do benchmarks that set `processes`. Threads in the
engine's process would compete with it for the interpreter.
"""

from typing import Any

from benchmarks.engine.image_processes import ImageProcesses, prepare
from benchmarks.engine.photos import Photos
from benchmarks.engine.workloads import Ask
from stoop_worker.engine.request import Request
from stoop_worker.images import Preparation

__all__ = ["PhotoRequests", "to_request"]


class PhotoRequests:
    """Loads the photo of each question, and prepares it as the family wants."""

    def __init__(
        self,
        geometry: Preparation,
        photos: Photos,
        *,
        on_device: bool = False,
        undecoded: bool = False,
        processes: int = 0,
    ) -> None:
        self._geometry = geometry
        self._photos = photos
        self._on_device = on_device
        self._undecoded = undecoded
        self._loaders = ImageProcesses(processes) if processes and not undecoded else None

    def request_of(self, name: str, ask: Ask) -> Request:
        """Return a question as the engine's request."""
        jpeg = self._photos[ask.shape][ask.photo % len(self._photos[ask.shape])]
        if self._loaders is not None:
            return to_request(name, ask, self._loaders.prepare(jpeg, self._geometry, self._on_device))
        return to_request(name, ask, prepare(jpeg, self._geometry, self._on_device, undecoded=self._undecoded))

    def close(self) -> None:
        """End the processes."""
        if self._loaders is not None:
            self._loaders.close()


def to_request(name: str, ask: Ask, picture: Any) -> Request:
    """Return a question as the engine's request; `picture` comes from `prepare`."""
    return Request(name, ask.task, (picture,), ask.sampling, adapter=ask.adapter)
