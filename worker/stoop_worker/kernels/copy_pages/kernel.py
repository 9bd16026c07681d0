# mypy: disable-error-code="import-untyped, no-untyped-call, no-untyped-def, untyped-decorator"
"""Copies whole pages of the KV pool, in all layers, in one launch.

A program copies one block of one page in one layer, of its keys or its values.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

__all__ = ["copy_pages"]

_BLOCK = 4096
_WORDS = (torch.int64, torch.int32, torch.int16, torch.uint8)


def copy_pages(pages: Tensor, sources_B: Tensor, targets_B: Tensor) -> None:
    """Compute `reference.copy_pages`."""
    flat_LPN = _in_words(pages)
    layers, count, size = flat_LPN.shape
    _copy_pages[(len(sources_B), layers, triton.cdiv(size, _BLOCK))](
        flat_LPN, sources_B, targets_B, count * size, SIZE=size, BLOCK=_BLOCK, num_warps=8
    )


def _in_words(pages: Tensor) -> Tensor:
    """Return the same memory as (2 x layers, pages, words), with the widest words that fit a page."""
    flat = pages.flatten(3).flatten(0, 1)
    size = flat.shape[-1] * flat.itemsize
    return flat.view(next(dtype for dtype in _WORDS if size % dtype.itemsize == 0))


@triton.jit
def _copy_pages(pages_ptr, sources_ptr, targets_ptr, layer_stride, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    source = tl.load(sources_ptr + tl.program_id(0)).to(tl.int64)
    if source >= 0:
        target = tl.load(targets_ptr + tl.program_id(0)).to(tl.int64)
        layer_ptr = pages_ptr + tl.program_id(1).to(tl.int64) * layer_stride
        word = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
        inside = word < SIZE
        tl.store(layer_ptr + target * SIZE + word, tl.load(layer_ptr + source * SIZE + word, mask=inside), mask=inside)
