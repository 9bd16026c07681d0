"""Full attention among the patches of each crop. N crops, P patches, H heads, D head dim; 3: query, key, value."""

from torch import Tensor

from stoop_worker.kernels.backend import runs_flash, uses_kernel
from stoop_worker.kernels.fp8 import FixedScale, quantise_by
from stoop_worker.kernels.vision_attention import hopper, library, reference

__all__ = ["vision_attention", "vision_attention_fp8"]


def vision_attention(qkv_NP3HD: Tensor, *, sizes_recur: bool = True) -> Tensor:
    """Let every patch attend to all patches of its crop, with scale 1 / sqrt(D); returns o_NPHD.

    The fastest kernels are prepared for each number of patches: cuDNN takes 65 ms for that, and a compiler seconds.
    Without `sizes_recur` it takes a kernel that needs no preparation.
    """
    if not uses_kernel(qkv_NP3HD):
        return reference.vision_attention(qkv_NP3HD)
    if not sizes_recur and runs_flash(qkv_NP3HD.device, qkv_NP3HD.dtype):
        return library.flash_attention(qkv_NP3HD)
    if hopper.takes(qkv_NP3HD):
        return hopper.vision_attention(qkv_NP3HD)
    return library.vision_attention(qkv_NP3HD)


def vision_attention_fp8(qkv_NP3HD: Tensor, scale: FixedScale) -> Tensor:
    """Return `vision_attention` divided by the scale, as float8_e4m3fn."""
    if uses_kernel(qkv_NP3HD) and hopper.takes(qkv_NP3HD):
        return hopper.vision_attention(qkv_NP3HD, factor=1 / scale.value)
    return quantise_by(vision_attention(qkv_NP3HD), scale)
