"""Logits to token ids, each row by its own rules. B rows, V vocabulary."""

from dataclasses import dataclass
from hashlib import blake2b

from torch import Tensor

from worker.engine.sequence import Sequence
from worker.kernels.sampling import LEAST_TEMPERATURE, sample

__all__ = ["MOST_SUPPRESSED", "Draws", "draw", "is_sampled", "uniform"]

MOST_SUPPRESSED = 2
"""No row has more ids that may not be drawn."""

_BITS = 24  # as many as a float32 can hold without rounding up to 1


@dataclass(frozen=True, slots=True)
class Draws:
    """How to draw B tokens: (B,) float64 each, and int32 `suppressed_B2`, which may not be drawn; -1 is none."""

    temperatures_B: Tensor
    top_ps_B: Tensor
    uniforms_B: Tensor
    suppressed_B2: Tensor


def draw(logits_BV: Tensor, draws: Draws) -> Tensor:
    """Return ids_B int64."""
    return sample(logits_BV, draws.temperatures_B, draws.top_ps_B, draws.uniforms_B, draws.suppressed_B2)


def is_sampled(sequence: Sequence) -> bool:
    """Say whether a sequence's tokens are drawn by chance."""
    return not sequence.skill.greedy and sequence.request.sampling.temperature >= LEAST_TEMPERATURE


def uniform(seed: int, count: int) -> float:
    """Return the number in [0, 1) for the token that comes after `count` tokens drawn under `seed`.

    A pure function, so a sequence draws the same tokens in any batch, and again after a preemption.
    """
    digest = blake2b(f"{seed} {count}".encode(), digest_size=8).digest()
    return float((int.from_bytes(digest, "little") >> (64 - _BITS)) / (1 << _BITS))
