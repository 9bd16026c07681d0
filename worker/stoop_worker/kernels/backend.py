"""Decides whether an operation runs as its kernel or as its reference in plain torch.

A dispatcher asks `uses_kernel` and imports its `kernel` module only then, so that a CPU run never imports Triton:

    if uses_kernel(x, weight):
        from stoop_worker.kernels.some_op.kernel import some_op as launch

        return launch(x, weight)
    return reference.some_op(x, weight)
"""

from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor

__all__ = ["has_triton", "launches_early", "runs_flash", "uses_kernel"]

_DTYPES = frozenset({torch.bfloat16, torch.float16, torch.float32, torch.uint8, torch.float8_e4m3fn})


@cache
def has_triton() -> bool:
    """Return whether Triton is installed, without importing it."""
    return find_spec("triton") is not None


def uses_kernel(first: Tensor, *others: Tensor) -> bool:
    """Return whether the kernel runs: on CUDA with Triton, unless gradients or float64 are wanted.

    `first` decides the device and the dtype; the others matter only for gradients.
    """
    if not first.is_cuda or first.dtype not in _DTYPES or not has_triton():
        return False
    return not (torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (first, *others)))


@cache
def runs_flash(device: torch.device, dtype: torch.dtype) -> bool:
    """Return whether torch's flash attention takes tensors of `dtype` on `device` (NVIDIA, from Ampere on)."""
    if device.type != "cuda" or dtype not in (torch.float16, torch.bfloat16):
        return False
    return torch.cuda.get_device_capability(device) >= (8, 0)


@cache
def launches_early(device: torch.device) -> bool:
    """Return whether kernels on `device` can start before the previous one has ended (NVIDIA, from Hopper on)."""
    if device.type != "cuda" or torch.version.cuda is None:
        return False
    return torch.cuda.get_device_capability(device) >= (9, 0)
