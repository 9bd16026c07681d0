"""Chooses tokens: the likeliest, or one drawn from the likeliest.

    sample(logits_BV, temperatures_B, top_ps_B, uniforms_B, limits=None) -> ids_B (int64)
    mask_of(ids, vocabulary) -> mask_W (int32), on the CPU

B rows, V vocabulary. Up to V = 65,536 this is one launch with one program a row. Up to `LONGEST_ROW` it is 7 launches
for bfloat16 logits and 11 for others, and 5 or 9 more with top_ks_B. All may be captured.
`logits_BV` is float32, float16 or bfloat16; the next three are float64 (B,). `limits` is a `Limits`: suppressed_B2
int32, top_ks_B int32, masks_NW int32 and mask_rows_B int32, each optional. A captured launch follows the tensors: which
rows are greedy, drawn, limited or unlimited may change between replays.
"""

from torch import Tensor

from stoop_worker.kernels.backend import uses_kernel
from stoop_worker.kernels.sampling import reference
from stoop_worker.kernels.sampling.limits import Limits
from stoop_worker.kernels.sampling.reference import LEAST_TEMPERATURE, mask_of, top_k_filter, top_p_filter

__all__ = ["LEAST_TEMPERATURE", "LONGEST_ROW", "Limits", "mask_of", "sample", "top_k_filter", "top_p_filter"]

LONGEST_ROW = 1 << 20
"""The largest vocabulary of the kernels; the reference takes larger ones, and waits for the device."""

_HELD_ROW = 1 << 16
"""The largest vocabulary that one program holds."""


def sample(
    logits_BV: Tensor,
    temperatures_B: Tensor,
    top_ps_B: Tensor,
    uniforms_B: Tensor,
    limits: Limits | None = None,
) -> Tensor:
    """Choose one token a row; returns ids_B int64. See `reference.sample`."""
    vocabulary = logits_BV.shape[1]
    if not uses_kernel(logits_BV) or vocabulary > LONGEST_ROW:
        return reference.sample(logits_BV, temperatures_B, top_ps_B, uniforms_B, limits)
    if vocabulary > _HELD_ROW:
        from stoop_worker.kernels.sampling import wide

        return wide.sample(logits_BV, temperatures_B, top_ps_B, uniforms_B, limits)
    from stoop_worker.kernels.sampling import kernel

    return kernel.sample(logits_BV, temperatures_B, top_ps_B, uniforms_B, limits)
