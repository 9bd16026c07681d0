"""The weights of one product of all experts, and the choice of experts. E experts, O out, I in, T tokens, K chosen."""

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

__all__ = ["ExpertLinear", "Routing"]


@dataclass(frozen=True, slots=True)
class ExpertLinear:
    """`weight_EOI`, one matrix an expert, without biases; `scales_EO` (float32) multiply the rows of float8 weights."""

    weight_EOI: Tensor
    scales_EO: Tensor | None = None


class Routing(NamedTuple):
    """The experts of each token, int32, likeliest first, and their weights, which sum to 1."""

    experts_TK: Tensor
    weights_TK: Tensor
