"""The learned temperature of attention, a scale for each head of q and of v.

    tau_parts(qkv_TN, w_XN, *, tanh_gelu) -> parts_STX
    scales(heat, positions_T) -> scales_TX
    temper(qkv_TN, scales_TX) -> qkv_TN

T tokens, N = 3 C columns of q, k and v, H heads, X = 2 H: the scales of q, then of v. S parts of a sum: how many is the
kernel's choice. `heat` is a `Heat` of the parts. `rotate_write` takes it too, and scales while it rotates and writes.
"""

from torch import Tensor

from stoop_worker.kernels.backend import uses_kernel
from stoop_worker.kernels.tau import reference
from stoop_worker.kernels.tau.heat import Heat
from stoop_worker.kernels.tau.reference import scales, temper

__all__ = ["Heat", "scales", "tau_parts", "temper"]


def tau_parts(qkv_TN: Tensor, w_XN: Tensor, *, tanh_gelu: bool, plainly: bool = False) -> Tensor:
    """Return gelu(qkv) W^T in parts; see `reference.tau_parts`. Launched `plainly`, the kernel does not start early."""
    if uses_kernel(qkv_TN, w_XN):
        from stoop_worker.kernels.tau import kernel

        return kernel.tau_parts(qkv_TN, w_XN, tanh_gelu=tanh_gelu, plainly=plainly)
    return reference.tau_parts(qkv_TN, w_XN, tanh_gelu=tanh_gelu)
