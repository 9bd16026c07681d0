"""Logits to token ids, each row by its own rules. R rows, V vocabulary."""

from hashlib import blake2b

from torch import Tensor

from stoop_worker.engine.tensors import SamplingRows
from stoop_worker.kernels.sampling import Limits, sample

__all__ = ["sample_tokens", "uniform"]

_BITS = 24  # as many as a float32 can hold without rounding up to 1


def sample_tokens(logits_RV: Tensor, rows: SamplingRows) -> Tensor:
    """Return ids_R int64."""
    limits = Limits(suppressed_B2=rows.suppressed_R2, top_ks_B=rows.top_ks_R)
    return sample(logits_RV, rows.temperatures_R, rows.top_ps_R, rows.uniforms_R, limits)


def uniform(seed: int, count: int) -> float:
    """Return the number in [0, 1) for the token that comes after `count` tokens sampled under `seed`.

    A pure function, so a sequence samples the same tokens in any batch, and again after a preemption.
    """
    digest = blake2b(f"{seed} {count}".encode(), digest_size=8).digest()
    return float((int.from_bytes(digest, "little") >> (64 - _BITS)) / (1 << _BITS))
