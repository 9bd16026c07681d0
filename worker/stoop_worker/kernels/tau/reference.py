"""The learned temperature of attention. T tokens, N = 3 C columns of q, k and v, H heads, D head dim.

    t    = tanh(gelu(qkv) W^T)
    tpos = 1 + sigmoid(alpha ln(position + 1)) - 1/2
    scale = t + tpos

W has H rows for q and H for v; both share tpos. Positions count from 0, images included.
"""

import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["position_term", "tau_scales", "temper"]


def tau_scales(
    qkv_TN: Tensor, positions_T: Tensor, w_XN: Tensor, alpha_H: Tensor, *, tanh_gelu: bool, position_dtype: torch.dtype
) -> Tensor:
    """Return the scales (T, 2 H) of every head: of q, then of v; float32, or float64 for float64 rows.

    `w_XN` (2 H, N) holds wq above wv. The rows are those of the linear layer, before rotation and scaling.
    """
    precise = torch.promote_types(qkv_TN.dtype, torch.float32)
    z_TN = functional.gelu(qkv_TN, approximate="tanh" if tanh_gelu else "none")
    t_TX = functional.linear(z_TN, w_XN).to(precise).tanh()
    term_TH = position_term(positions_T, alpha_H, position_dtype).to(precise)
    return t_TX + torch.cat((term_TH, term_TH), dim=-1)


def position_term(positions_T: Tensor, alpha_H: Tensor, dtype: torch.dtype) -> Tensor:
    """Return tpos (T, H), every step rounded to `dtype`: bfloat16 rounds positions over 256."""
    precise = torch.promote_types(dtype, torch.float64) if alpha_H.dtype is torch.float64 else dtype
    logs_T = (positions_T.to(precise) + 1).log()
    return 1 + ((logs_T[..., None] * alpha_H.to(precise)).sigmoid() - 0.5)


def temper(qkv_TN: Tensor, scales_TX: Tensor) -> Tensor:
    """Return rows whose heads of q and v are multiplied by their scales, rounded once; k stays as it is."""
    q_TH, v_TH = scales_TX.chunk(2, dim=-1)
    factors_TH = torch.cat((q_TH, torch.ones_like(q_TH), v_TH), dim=-1)
    heads_THD = qkv_TN.view(*factors_TH.shape, -1)
    return (heads_THD * factors_TH[..., None]).to(qkv_TN.dtype).flatten(-2)
