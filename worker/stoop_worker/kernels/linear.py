"""Linear layers with weights as they came, in torch: the fastest product of the device.

T rows (may stand for several leading dims), C columns of the input, N of the output.

Torch gives products in float32 on a CPU to MKL. oneDNN, which is also in torch, takes less than half as long for them
on a CPU by AMD. It has a longer start, so that small products stay with MKL.
"""

import platform
from functools import cache

import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["linear"]

_LEAST_SIZE = 1 << 20
_FEW_ROWS, _VOCABULARY = 4, 1 << 14  # MKL is as fast for few rows, unless the weight is a vocabulary's


def linear(x_TC: Tensor, weight_NC: Tensor, bias_N: Tensor | None = None) -> Tensor:
    """Return x W^T + b in x's dtype."""
    if _suits_onednn(x_TC, weight_NC):
        product_TN: Tensor = torch.ops.mkldnn._linear_pointwise(x_TC, weight_NC, bias_N, "none", [], "")
        return product_TN
    return functional.linear(x_TC, weight_NC, bias_N)


def _suits_onednn(x_TC: Tensor, weight_NC: Tensor) -> bool:
    if not x_TC.is_cpu or x_TC.dtype != torch.float32 or not _has_onednn():
        return False
    out, into = weight_NC.shape
    if x_TC.numel() * out < _LEAST_SIZE or (x_TC.numel() < _FEW_ROWS * into and out < _VOCABULARY):
        return False
    # a weight with gaps in memory would go to oneDNN's reference code, which takes a thousand times as long
    if not (weight_NC.is_contiguous() or weight_NC.t().is_contiguous()):
        return False
    return not (torch.is_grad_enabled() and (x_TC.requires_grad or weight_NC.requires_grad))


@cache
def _has_onednn() -> bool:
    """Return whether torch has oneDNN's product; on other processors than x86 its own call is the fastest."""
    return (
        platform.machine() in ("x86_64", "AMD64")
        and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    )
