"""The learned temperature of attention. T tokens, N = 3 C columns of q, k and v, H heads, S parts of a sum.

    t     = tanh(gelu(qkv) W^T)
    term  = 1 + sigmoid(alpha ln(position + 1)) - 1/2
    scale = t + term

W has H rows for q and H for v (X = 2 H); both share the term. Positions count from 0, images included.
"""

import torch
from torch import Tensor
from torch.nn import functional

from stoop_worker.kernels.tau.heat import Heat

__all__ = ["position_term", "scales", "tau_parts", "temper"]


def tau_parts(qkv_TN: Tensor, w_XN: Tensor, *, tanh_gelu: bool) -> Tensor:
    """Return gelu(qkv) W^T as one part (1, T, X), float32 or float64; GELU is rounded to the dtype of the rows."""
    z_TN = functional.gelu(qkv_TN, approximate="tanh" if tanh_gelu else "none")
    return functional.linear(z_TN, w_XN).to(torch.promote_types(qkv_TN.dtype, torch.float32))[None]


def scales(heat: Heat, positions_T: Tensor) -> Tensor:
    """Return the scales (T, X) of every head: of q, then of v."""
    t_TX = heat.parts_STX.sum(dim=0).tanh()
    term_TH = position_term(positions_T, heat.alpha_H, rounded=heat.rounded_positions).to(t_TX.dtype)
    return t_TX + torch.cat((term_TH, term_TH), dim=-1)


def position_term(positions_T: Tensor, alpha_H: Tensor, *, rounded: bool) -> Tensor:
    """Return the term (T, H) in float32 (float64 for a float64 alpha), or with every step rounded to bfloat16."""
    dtype = torch.bfloat16 if rounded else torch.promote_types(alpha_H.dtype, torch.float32)
    logs_T = (positions_T.to(dtype) + 1).log()
    return 1 + ((logs_T[..., None] * alpha_H.to(dtype)).sigmoid() - 0.5)


def temper(qkv_TN: Tensor, scales_TX: Tensor) -> Tensor:
    """Return rows whose heads of q and v are multiplied by their scales, rounded once; k stays as it is."""
    q_TH, v_TH = scales_TX.chunk(2, dim=-1)
    factors_TH = torch.cat((q_TH, torch.ones_like(q_TH), v_TH), dim=-1)
    heads_THD = qkv_TN.view(*factors_TH.shape, -1)
    return (heads_THD * factors_TH[..., None]).to(qkv_TN.dtype).flatten(-2)
