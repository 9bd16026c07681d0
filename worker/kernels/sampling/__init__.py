"""Choosing tokens: the likeliest, or one drawn from the likeliest."""

from torch import Tensor

from worker.kernels.backend import uses_kernel
from worker.kernels.sampling import reference
from worker.kernels.sampling.reference import LEAST_TEMPERATURE, top_p_filter

__all__ = ["LEAST_TEMPERATURE", "LONGEST_ROW", "sample", "top_p_filter"]

LONGEST_ROW = 1 << 16
"""The largest vocabulary that the kernel takes; a larger one goes to the reference."""


def sample(
    logits_BV: Tensor,
    temperatures_B: Tensor,
    top_ps_B: Tensor,
    uniforms_B: Tensor,
    suppressed_B2: Tensor | None = None,
) -> Tensor:
    """Choose one token a row; returns ids_B int64. See `reference.sample`."""
    if uses_kernel(logits_BV) and logits_BV.shape[1] <= LONGEST_ROW:
        from worker.kernels.sampling import kernel

        return kernel.sample(logits_BV, temperatures_B, top_ps_B, uniforms_B, suppressed_B2)
    return reference.sample(logits_BV, temperatures_B, top_ps_B, uniforms_B, suppressed_B2)
