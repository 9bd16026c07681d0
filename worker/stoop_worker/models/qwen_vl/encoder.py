"""Encodes the images of a step: each image of a size that came before by that size's graph, the others together.

An encoder of 24 layers has a thousand launches, which take four times as long as the work on one photo.
"""

from collections.abc import Callable, Sequence
from typing import Final

import torch
from torch import Tensor

from stoop_worker.engine.graphs import Graphs
from stoop_worker.images import Crops, Image
from stoop_worker.models.qwen_vl import vision
from stoop_worker.models.qwen_vl.config import VisionConfig
from stoop_worker.models.qwen_vl.weights import VisionWeights

__all__ = ["ImageEncoder"]

_MOST_CAPTURED: Final = 16  # sizes
_MOST_PATCHES: Final = 4096  # of a captured image; with more, the work takes longer than its launches
_MOST_SEEN: Final = 256  # sizes that came once

_Size = tuple[int, int]
"""Height and width in pixels."""


class ImageEncoder:
    """Encodes images for one engine; E embeddings of all, S sets, C the text model's dim."""

    def __init__(self, weights: VisionWeights, config: VisionConfig) -> None:
        self._weights = weights
        self._config = config
        self._graphs: Graphs | None = None
        self._seen: dict[_Size, None] = {}  # the oldest first
        self._pixels: dict[_Size, Tensor] = {}  # the input of each captured size

    def capture(self, graphs: Graphs) -> None:
        """Capture each size from now on when it comes for the second time."""
        self._graphs = graphs

    def encode(self, images: Sequence[Crops | Image], out_EC: Tensor, on_progress: Callable[[], None]) -> None:
        """Write the embeddings of images to `out_EC`, (E, S C), one image after another."""
        places = torch.split(out_EC, [self._config.rule.width_of(*_size(image)) for image in images])
        others: list[tuple[Crops | Image, Tensor]] = []
        for image, place_EC in zip(images, places, strict=True):
            graphs = self._graphs_for(_size(image))
            if graphs is None:
                others.append((image, place_EC))
                continue
            self._pixels[_size(image)].copy_(torch.from_numpy(image.pixels), non_blocking=True)
            place_EC.copy_(graphs.replay(_key(_size(image))))
            on_progress()
        if others:
            self._encode_together(others, on_progress)

    def _encode_together(self, images: Sequence[tuple[Crops | Image, Tensor]], on_progress: Callable[[], None]) -> None:
        device = self._weights.positions.device
        pixels = [torch.from_numpy(image.pixels).to(device, non_blocking=True) for image, _ in images]
        found_EC = vision.encode(pixels, self._weights, self._config, on_progress)
        for (_, place_EC), made_EC in zip(
            images, torch.split(found_EC, [len(place) for _, place in images]), strict=True
        ):
            place_EC.copy_(made_EC)

    def _graphs_for(self, size: _Size) -> Graphs | None:
        """Return the graphs if one of them encodes this size, which may be captured now."""
        graphs, (height, width) = self._graphs, size
        if graphs is None or size in self._pixels:
            return graphs
        if len(self._pixels) == _MOST_CAPTURED or height * width > _MOST_PATCHES * self._config.rule.patch**2:
            return None
        if size not in self._seen:
            self._seen[size] = None
            if len(self._seen) > _MOST_SEEN:
                del self._seen[next(iter(self._seen))]
            return None
        pixels = torch.zeros((height, width, 3), dtype=torch.uint8, device=self._weights.positions.device)
        graphs.capture(_key(size), lambda: vision.encode([pixels], self._weights, self._config, lambda: None))
        self._pixels[size] = pixels
        return graphs


def _size(image: Crops | Image) -> _Size:
    height, width, _ = image.pixels.shape
    return height, width


def _key(size: _Size) -> tuple[str, _Size]:
    return "image", size
