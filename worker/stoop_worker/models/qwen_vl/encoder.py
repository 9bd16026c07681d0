"""Encodes the images of a step. An image whose size was seen before runs that size's graph; the others run together.

An encoder of 24 layers has hundreds of launches, which take longer than the work on one photo.
"""

from collections.abc import Callable, Sequence
from typing import Final

import torch
from torch import Tensor

from stoop_worker.engine.graphs import Graphs
from stoop_worker.images import Image, Jpeg
from stoop_worker.kernels.resize import Filter, resize
from stoop_worker.models.blocks.pixels import send_pixels
from stoop_worker.models.qwen_vl import vision
from stoop_worker.models.qwen_vl.config import VisionConfig
from stoop_worker.models.qwen_vl.places import places_of
from stoop_worker.models.qwen_vl.weights import VisionWeights

__all__ = ["ImageEncoder"]

_MOST_CAPTURED: Final = 16  # sizes
_MOST_PATCHES: Final = 4096  # of a captured image; with more, the work takes longer than its launches
_MOST_SEEN: Final = 256  # sizes that came once

_Size = tuple[int, int]
"""Height and width in pixels."""
_Encode = Callable[[Sequence[Tensor], Callable[[], None]], Tensor]
"""Encodes the pixels of images, and reports its progress."""


class ImageEncoder:
    """Encodes images for one engine; E embeddings of all, S sets, C the text model's dim."""

    def __init__(self, weights: VisionWeights, config: VisionConfig) -> None:
        self._weights = weights
        self._config = config
        self._device = weights.positions.device
        self._graphs: Graphs | None = None
        self._seen: dict[_Size, None] = {}  # the oldest first
        self._pixels: dict[_Size, Tensor] = {}  # the input of each captured size

    def capture(self, graphs: Graphs) -> None:
        """From now on, capture each size when it is seen for the second time."""
        self._graphs = graphs

    def encode(self, images: Sequence[Image | Jpeg], out_EC: Tensor, on_progress: Callable[[], None]) -> None:
        """Write the embeddings of images to `out_EC`, (E, S C), one image after another."""
        places = torch.split(out_EC, [self._config.rule.width_of(*image.size) for image in images])
        sent = send_pixels([image if isinstance(image, Jpeg) else image.pixels for image in images], self._device)
        others: list[tuple[Tensor, Tensor]] = []
        for image, pixels, place_EC in zip(images, sent, places, strict=True):
            graphs = self._graphs_for(image.size)
            if graphs is None:
                others.append((_fitted(pixels, image.size), place_EC))
                continue
            _fitted(pixels, image.size, self._pixels[image.size])
            place_EC.copy_(graphs.replay(_key(image.size)))
            on_progress()
        if others:
            self._encode_together(others, on_progress)

    def _encode_together(self, images: Sequence[tuple[Tensor, Tensor]], on_progress: Callable[[], None]) -> None:
        pixels, places = zip(*images, strict=True)
        sizes = [(len(each), each.shape[1]) for each in pixels]
        found_EC = self._encoder_of(sizes, recur=False)(pixels, on_progress)
        for place_EC, made_EC in zip(places, torch.split(found_EC, [len(place) for place in places]), strict=True):
            place_EC.copy_(made_EC)

    def _encoder_of(self, sizes: Sequence[_Size], *, recur: bool) -> _Encode:
        """Return the encoder of images of these sizes, which may be used again."""
        weights, config = self._weights, self._config
        grids = [vision.grid_of(*size, config) for size in sizes]
        places = places_of(grids, weights.positions, config, recur=recur)
        return lambda pixels, on_progress: vision.encode(pixels, places, weights, config, on_progress)

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
        pixels = torch.zeros((height, width, 3), dtype=torch.uint8, device=self._device)
        encode = self._encoder_of([size], recur=True)
        graphs.capture(_key(size), lambda: encode([pixels], lambda: None))
        self._pixels[size] = pixels
        return graphs


def _fitted(pixels: Tensor, size: _Size, into: Tensor | None = None) -> Tensor:
    """Resize an image on its device, unless it has the size already."""
    if tuple(pixels.shape[:2]) != size:
        return resize(pixels, *size, by=Filter.BICUBIC, into_HWC=into)
    return pixels if into is None else into.copy_(pixels)


def _key(size: _Size) -> tuple[str, _Size]:
    return "image", size
