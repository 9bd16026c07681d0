"""The learned temperature of attention in Moondream 3: every head of q and v is scaled before it is used or kept.

T rows (may stand for several leading dims), N columns of q, k and v.
"""

import torch
from torch import Tensor

from stoop_worker.kernels.tau import tau_scales, temper
from stoop_worker.models.moondream.weights import Attention

__all__ = ["tempered"]


def tempered(qkv_TN: Tensor, positions_T: Tensor, attention: Attention) -> Tensor:
    """Return the rows with q and v scaled; Moondream 2 has no temperature, and its rows stay as they are."""
    tau = attention.tau
    if tau is None:
        return qkv_TN
    scales_TX = tau_scales(
        qkv_TN,
        positions_T,
        tau.w,
        tau.alpha,
        tanh_gelu=tau.rule.gelu == "tanh",
        position_dtype=getattr(torch, tau.rule.position_dtype),
    )
    return temper(qkv_TN, scales_TX)
