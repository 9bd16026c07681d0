"""The learned temperature of attention, a scale for each head of q and of v.

    tau_scales(qkv_TN, positions_T, w_XN, alpha_H, *, tanh_gelu, position_dtype) -> scales_TX
    temper(qkv_TN, scales_TX) -> qkv_TN

T tokens, N = 3 C columns of q, k and v, H heads, X = 2 H: the scales of q, then of v, float32.
"""

from stoop_worker.kernels.tau.reference import tau_scales, temper

__all__ = ["tau_scales", "temper"]
