"""Attention of the vision encoder: 729 patches, 16 heads of 72, bfloat16, against cuDNN and flash attention."""

from functools import partial

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from benchmarks.kernel_rows.row import Row, check, microseconds
from worker.kernels.vision_attention import kernel, reference
from worker.kernels.vision_attention.kernel import Shape

__all__ = ["alternatives", "rows"]

PATCHES, HEADS, DIM = 729, 16, 72
CROPS = [9, 28, 56]
SHAPES = [
    Shape(rows=query_rows, keys=keys, warps=warps, stages=stages)
    for query_rows, keys, warps in ((64, 32, 4), (64, 64, 4), (64, 128, 4), (128, 32, 8), (128, 64, 8), (128, 128, 8))
    for stages in (2, 3, 4)
]
LIBRARIES = {"cuDNN": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}


def qkv(crops: int) -> tuple[Tensor, Tensor, Tensor]:
    made = torch.randn(crops, PATCHES, 3, HEADS, DIM, device="cuda", dtype=torch.bfloat16)
    q, k, v = made.unbind(2)
    return q, k, v


def rate(crops: int, us: float) -> str:
    return f"{4 * crops * HEADS * PATCHES**2 * DIM / us / 1e6:.0f} TFLOP/s"


def library_us(backend: SDPBackend, given: tuple[Tensor, Tensor, Tensor]) -> float:
    q, k, v = (x.transpose(1, 2) for x in given)
    with sdpa_kernel(backend):
        return microseconds(partial(scaled_dot_product_attention, q, k, v))


def rows() -> list[Row]:
    """Return the shape in use at several numbers of crops, beside each library."""
    found = []
    for crops in CROPS:
        given = qkv(crops)
        check(kernel.vision_attention(*given), reference.vision_attention(*(x.float() for x in given)), 1e-2)
        ours = microseconds(partial(kernel.vision_attention, *given))
        for name, backend in LIBRARIES.items():
            theirs = library_us(backend, given)
            label = f"{name}, {rate(crops, theirs)}"
            found.append(Row("vision attention", f"{crops} x 729 x 16 x 72", ours, theirs, label, rate(crops, ours)))
    return found


def alternatives() -> list[Row]:
    """Return other shapes of the work, beside cuDNN."""
    found = []
    given = qkv(28)
    expected = reference.vision_attention(*(x.float() for x in given))
    theirs = library_us(SDPBackend.CUDNN_ATTENTION, given)
    for shape in SHAPES:
        call = partial(kernel.vision_attention, *given, shape=shape)
        check(call(), expected, 1e-2)
        ours = microseconds(call)
        cut = f"{shape.rows} rows, {shape.keys} keys, {shape.warps} warps, {shape.stages} st."
        found.append(Row("vision attention", cut, ours, theirs, "cuDNN", rate(28, ours)))
    return found
