"""Full attention within packed texts, or within a window to both sides.

    packed_attention(q_THD, k_TKD, v_TKD, texts, scale=..., window=None) -> o_THD

T tokens, H heads, K key heads, D head dim. The channels of a head are contiguous.
"""

from torch import Tensor

from stoop_worker.kernels.backend import runs_flash, uses_kernel
from stoop_worker.kernels.packed_attention import reference
from stoop_worker.kernels.packed_attention.reference import Texts

__all__ = ["Texts", "packed_attention", "takes"]

_MOST_CHANNELS = 64  # of a head; for 256, torch's flash attention is as fast


def takes(q_THD: Tensor) -> bool:
    """Return whether the kernel runs: for 16-bit dtypes on NVIDIA, and heads of up to 64 channels."""
    return uses_kernel(q_THD) and runs_flash(q_THD.device, q_THD.dtype) and q_THD.shape[-1] <= _MOST_CHANNELS


def packed_attention(
    q_THD: Tensor, k_TKD: Tensor, v_TKD: Tensor, texts: Texts, *, scale: float, window: int | None = None
) -> Tensor:
    """Let every token attend to its text; see `reference.packed_attention`."""
    if takes(q_THD):
        from stoop_worker.kernels.packed_attention.kernel import packed_attention as launch

        return launch(q_THD, k_TKD, v_TKD, texts, scale=scale, window=window)
    return reference.packed_attention(q_THD, k_TKD, v_TKD, texts, scale=scale, window=window)
