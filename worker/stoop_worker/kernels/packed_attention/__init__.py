# ruff: noqa: PLR0913
"""Full attention within packed texts, or within a window to both sides.

    packed_attention(q_THD, k_TKD, v_TKD, starts_N1, longest=..., scale=..., window=None) -> o_THD

T tokens, N texts, H heads, K key heads, D head dim. The channels of a head are contiguous; `starts_N1` is int32.
"""

from torch import Tensor

from stoop_worker.kernels.backend import runs_flash, uses_kernel
from stoop_worker.kernels.packed_attention import reference

__all__ = ["packed_attention", "takes"]


def takes(q_THD: Tensor) -> bool:
    """Return whether the kernel runs: for 16-bit dtypes on NVIDIA, and heads of 16 to 256 channels, a power of two."""
    dim = q_THD.shape[-1]
    return runs_flash(q_THD.device, q_THD.dtype) and uses_kernel(q_THD) and dim in (16, 32, 64, 128, 256)


def packed_attention(
    q_THD: Tensor,
    k_TKD: Tensor,
    v_TKD: Tensor,
    starts_N1: Tensor,
    *,
    longest: int,
    scale: float,
    window: int | None = None,
) -> Tensor:
    """Let every token attend to its text; see `reference.packed_attention`. No text is longer than `longest`."""
    if takes(q_THD):
        from stoop_worker.kernels.packed_attention.kernel import packed_attention as launch

        return launch(q_THD, k_TKD, v_TKD, starts_N1, longest=longest, scale=scale, window=window)
    return reference.packed_attention(q_THD, k_TKD, v_TKD, starts_N1, scale=scale, window=window)
