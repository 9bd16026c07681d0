"""Times the step from pixels to crops on the device, against Pillow on one core of the host."""

from functools import partial
from time import perf_counter

import numpy as np
import torch

from benchmarks.kernels.row import Row, check, microseconds
from stoop_worker.images import CropGeometry, Image, cut
from stoop_worker.kernels.resize import resize
from stoop_worker.models.moondream.crops import cut_on_device

__all__ = ["rows"]

SIZES = [(480, 640), (600, 850), (3000, 4000)]
GEOMETRY = CropGeometry()


def measure(high: int, wide: int) -> list[Row]:
    image = Image.of(np.random.default_rng(0).integers(0, 256, (high, wide, 3), dtype=np.uint8))
    pixels = torch.from_numpy(image.pixels).cuda()
    started = perf_counter()
    expected = cut(image, GEOMETRY).pixels
    pillow_us = (perf_counter() - started) * 1e6
    # a single tile is the global crop itself
    found = torch.empty(expected.shape if len(expected) > 2 else (1, *expected.shape[1:]), dtype=torch.uint8).cuda()
    cut_on_device(pixels, GEOMETRY, found)
    check(found.cpu(), torch.from_numpy(expected[: len(found)]), 0)
    one = microseconds(partial(resize, pixels, 378, 378))
    whole = microseconds(partial(cut_on_device, pixels, GEOMETRY, found))
    shape = f"{high} x {wide}"
    rate = f"{pixels.numel() / one / 1e6:.3f} TB/s"
    return [
        Row("resize to 378 x 378", shape, one, None, "", rate),
        Row("cut into crops", f"{shape}, {len(found)} crops", whole, pillow_us, "Pillow, one core", ""),
    ]


def rows() -> list[Row]:
    """Return images of several sizes."""
    return [row for size in SIZES for row in measure(*size)]
