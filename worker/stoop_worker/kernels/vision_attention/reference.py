"""Full attention among the patches of each crop. N crops, P patches, H heads, D head dim; 3: query, key, value."""

from torch import Tensor
from torch.nn import functional

__all__ = ["vision_attention"]


def vision_attention(qkv_NP3HD: Tensor) -> Tensor:
    """Let every patch attend to all patches of its crop, with scale 1 / sqrt(D); returns o_NPHD."""
    q_NHPD, k_NHPD, v_NHPD = (x.transpose(-3, -2) for x in qkv_NP3HD.unbind(-3))
    return functional.scaled_dot_product_attention(q_NHPD, k_NHPD, v_NHPD).transpose(-3, -2)
