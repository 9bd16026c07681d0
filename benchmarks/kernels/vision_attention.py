"""Times the encoder's attention (729 patches, 16 heads of 72, bfloat16) against cuDNN, the fastest in torch."""

from functools import partial

import torch

from benchmarks.kernels.row import Row, check, microseconds
from stoop_worker.kernels.vision_attention import library, reference, vision_attention

__all__ = ["rows"]

PATCHES, HEADS, DIM = 729, 16, 72
CROPS = [9, 27, 63]


def rate(crops: int, us: float) -> str:
    return f"{4 * crops * HEADS * PATCHES**2 * DIM / us / 1e6:.0f} TFLOP/s"


def rows() -> list[Row]:
    """Return several numbers of crops."""
    found = []
    for crops in CROPS:
        qkv = torch.randn(crops, PATCHES, 3, HEADS, DIM, device="cuda", dtype=torch.bfloat16)
        check(vision_attention(qkv), reference.vision_attention(qkv.float()), 1e-2)
        ours, cudnn = (microseconds(partial(attend, qkv)) for attend in (vision_attention, library.vision_attention))
        label = f"cuDNN, {rate(crops, cudnn)}"
        found.append(Row("vision attention", f"{crops} x 729 x 16 x 72", ours, cudnn, label, rate(crops, ours)))
    return found
