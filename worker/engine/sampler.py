"""Logits to token ids, each row by its own rules. B rows, S of them not greedy, V vocabulary, N suppressed places."""

from dataclasses import dataclass
from hashlib import blake2b

from torch import Tensor

from worker.kernels.sampling import sample

__all__ = ["Draws", "draw", "uniform"]

_BITS = 24  # as many as a float32 can hold without rounding up to 1


@dataclass(frozen=True, slots=True)
class Draws:
    """How to draw B tokens: the rows `rows_S` are sampled, all others greedy.

    (`suppressed_rows_N`, `suppressed_ids_N`) may not be drawn.
    """

    rows_S: Tensor
    temperatures_S: Tensor
    top_ps_S: Tensor
    uniforms_S: Tensor
    suppressed_rows_N: Tensor
    suppressed_ids_N: Tensor


def draw(logits_BV: Tensor, draws: Draws) -> Tensor:
    """Return ids_B int64; writes to the logits. Only the sampled rows pay for sorting the vocabulary."""
    logits_BV[draws.suppressed_rows_N, draws.suppressed_ids_N] = float("-inf")
    ids_B = logits_BV.argmax(dim=-1)
    if draws.rows_S.numel():
        sampled_SV = logits_BV[draws.rows_S]
        ids_B[draws.rows_S] = sample(sampled_SV, draws.temperatures_S, draws.top_ps_S, draws.uniforms_S)
    return ids_B


def uniform(seed: int, count: int) -> float:
    """Return the number in [0, 1) for the token that comes after `count` tokens drawn under `seed`.

    A pure function, so a sequence draws the same tokens in any batch, and again after a preemption.
    """
    digest = blake2b(f"{seed} {count}".encode(), digest_size=8).digest()
    return float((int.from_bytes(digest, "little") >> (64 - _BITS)) / (1 << _BITS))
