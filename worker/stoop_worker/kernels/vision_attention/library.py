"""Attention from torch's libraries: cuDNN if it is available, because it is the fastest at a head dim of 72.

Letters as in `reference`.
"""

from functools import cache

import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["flash_attention", "vision_attention"]


def vision_attention(qkv_NP3HD: Tensor) -> Tensor:
    """See the reference; if cuDNN does not take the tensor, torch chooses, usually flash attention."""
    q_NHPD, k_NHPD, v_NHPD = (x.transpose(-3, -2) for x in qkv_NP3HD.unbind(-3))
    if q_NHPD.is_cuda and q_NHPD.dim() == 4 and _has_cudnn(q_NHPD.dtype, q_NHPD.shape[-1], q_NHPD.device):
        # called directly: a context that allows only one library costs more time than the launch
        found = torch.ops.aten._scaled_dot_product_cudnn_attention(q_NHPD, k_NHPD, v_NHPD, None, False)
        o_NHPD: Tensor = found[0]
    else:
        o_NHPD = functional.scaled_dot_product_attention(q_NHPD, k_NHPD, v_NHPD)
    return o_NHPD.transpose(-3, -2)


def flash_attention(qkv_NP3HD: Tensor) -> Tensor:
    """See the reference, by torch's flash attention; torch's own choice would be cuDNN."""
    q_NHPD, k_NHPD, v_NHPD = (x.transpose(-3, -2) for x in qkv_NP3HD.unbind(-3))
    o_NHPD: Tensor = torch.ops.aten._scaled_dot_product_flash_attention(q_NHPD, k_NHPD, v_NHPD)[0]
    return o_NHPD.transpose(-3, -2)


@cache
def _has_cudnn(dtype: torch.dtype, dim: int, device: torch.device) -> bool:
    x_NHPD = torch.empty((1, 1, 64, dim), dtype=dtype, device=device)
    return torch.backends.cuda.can_use_cudnn_attention(
        torch.backends.cuda.SDPAParams(x_NHPD, x_NHPD, x_NHPD, None, 0.0, False, False)
    )
