"""Full attention among the patches of each crop. N crops, P patches, H heads, D head dim."""

from torch import Tensor

from worker.kernels.backend import uses_kernel
from worker.kernels.vision_attention import library, reference

__all__ = ["vision_attention"]


def vision_attention(q_NPHD: Tensor, k_NPHD: Tensor, v_NPHD: Tensor) -> Tensor:
    """Let every patch attend to all patches of its crop, with scale 1 / sqrt(D); returns o_NPHD."""
    if uses_kernel(q_NPHD, k_NPHD, v_NPHD):
        return library.vision_attention(q_NPHD, k_NPHD, v_NPHD)
    return reference.vision_attention(q_NPHD, k_NPHD, v_NPHD)
