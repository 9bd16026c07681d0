"""The learned temperature of attention in Moondream 3: every head of q and v is scaled before it is used or kept.

T rows (may stand for several leading dims), N columns of q, k and v.
"""

from torch import Tensor

from stoop_worker.kernels.tau import Heat, scales, tau_parts, temper
from stoop_worker.models.moondream.weights import Attention, Tau

__all__ = ["heat_of", "tempered"]


def heat_of(qkv_TN: Tensor, tau: Tau | None, *, plainly: bool = False) -> Heat | None:
    """Return the values that determine these rows' temperatures; None in Moondream 2, which has no temperatures.

    Launched `plainly`, the kernel does not start early.
    """
    if tau is None:
        return None
    parts_STX = tau_parts(qkv_TN, tau.w, tanh_gelu=tau.rule.gelu == "tanh", plainly=plainly)
    return Heat(parts_STX, tau.alpha, rounded_positions=tau.rule.position_dtype == "bfloat16")


def tempered(qkv_TN: Tensor, positions_T: Tensor, attention: Attention) -> Tensor:
    """Return the rows with q and v scaled."""
    heat = heat_of(qkv_TN, attention.tau)
    return qkv_TN if heat is None else temper(qkv_TN, scales(heat, positions_T))
