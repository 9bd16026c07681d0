"""Times the step from pixels to patches: crops of 378 x 378 pixels, patches of 14 x 14, bfloat16."""

from functools import partial

import torch

from benchmarks.kernels.row import Row, check, microseconds
from stoop_worker.kernels.patchify import patchify, reference

__all__ = ["rows"]

CROPS = [1, 9, 28, 56]


def measure(crops: int) -> Row:
    pixels = torch.randint(0, 256, (crops, 378, 378, 3), dtype=torch.uint8, device="cuda")
    ours = partial(patchify, pixels, 14, dtype=torch.bfloat16)
    plain = partial(reference.patchify, pixels, 14, dtype=torch.bfloat16)
    check(ours(), plain(), 0)
    ours_us = microseconds(ours)
    rate = f"{3 * pixels.numel() / ours_us / 1e6:.2f} TB/s"
    return Row("patchify", f"{crops} crops", ours_us, microseconds(plain), "torch, one by one", rate)


def rows() -> list[Row]:
    """Return several numbers of crops."""
    return [measure(crops) for crops in CROPS]
