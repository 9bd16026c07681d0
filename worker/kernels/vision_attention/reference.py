"""Full attention among the patches of each crop. N crops, P patches, H heads, D head dim."""

from torch import Tensor
from torch.nn import functional

__all__ = ["vision_attention"]


def vision_attention(q_NPHD: Tensor, k_NPHD: Tensor, v_NPHD: Tensor) -> Tensor:
    """Let every patch attend to all patches of its crop, with scale 1 / sqrt(D); returns o_NPHD."""
    o_NHPD = functional.scaled_dot_product_attention(
        q_NPHD.transpose(-3, -2), k_NPHD.transpose(-3, -2), v_NPHD.transpose(-3, -2)
    )
    return o_NHPD.transpose(-3, -2)
