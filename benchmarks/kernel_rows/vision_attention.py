"""Attention of the vision encoder: 729 patches, 16 heads of 72, bfloat16: cuDNN, which is used, against flash."""

from functools import partial

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from benchmarks.kernel_rows.row import Row, check, microseconds
from worker.kernels.vision_attention import reference, vision_attention

__all__ = ["rows"]

PATCHES, HEADS, DIM = 729, 16, 72
CROPS = [9, 28, 56]


def qkv(crops: int) -> tuple[Tensor, Tensor, Tensor]:
    made = torch.randn(crops, PATCHES, 3, HEADS, DIM, device="cuda", dtype=torch.bfloat16)
    q, k, v = made.unbind(2)
    return q, k, v


def rate(crops: int, us: float) -> str:
    return f"{4 * crops * HEADS * PATCHES**2 * DIM / us / 1e6:.0f} TFLOP/s"


def flash_us(given: tuple[Tensor, Tensor, Tensor]) -> float:
    q, k, v = (x.transpose(1, 2) for x in given)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return microseconds(partial(scaled_dot_product_attention, q, k, v))


def rows() -> list[Row]:
    """Return several numbers of crops."""
    found = []
    for crops in CROPS:
        given = qkv(crops)
        check(vision_attention(*given), reference.vision_attention(*(x.float() for x in given)), 1e-2)
        used, flash = microseconds(partial(vision_attention, *given)), flash_us(given)
        label = f"flash, {rate(crops, flash)}"
        found.append(Row("vision attention", f"{crops} x 729 x 16 x 72", used, flash, label, rate(crops, used)))
    return found
