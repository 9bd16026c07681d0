"""The weights of one product of all experts, and the choice of experts. E experts, O out, I in, T tokens, K chosen."""

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

__all__ = ["ExpertAdapter", "ExpertLinear", "ExpertOutputs", "Routing"]


@dataclass(frozen=True, slots=True)
class ExpertLinear:
    """`weight_EOI`, one matrix an expert, without biases; `scales_EO` (float32) multiply the rows of float8 weights."""

    weight_EOI: Tensor
    scales_EO: Tensor | None = None


@dataclass(frozen=True, slots=True)
class ExpertAdapter:
    """Low-rank corrections of all experts, those of several adapters side by side: K columns in all.

    `up_a_EKC` and `up_b_EKN` correct the first product before it is halved, `down_a_EKF` and `down_b_EKC` the second
    before it is weighted. An adapter has `rank` columns, from `rank` times its number on. `numbers_T` are the numbers
    of the tokens' adapters; number 0 is none.
    """

    up_a_EKC: Tensor
    up_b_EKN: Tensor
    down_a_EKF: Tensor
    down_b_EKC: Tensor
    rank: int
    numbers_T: Tensor | None = None


class Routing(NamedTuple):
    """The experts of each token, int32, likeliest first, and their weights, which sum to 1."""

    experts_TK: Tensor
    weights_TK: Tensor


class ExpertOutputs(NamedTuple):
    """The outputs of the K experts of each token, not yet added up: `found_PC` by pair t K + k, and their weights."""

    found_PC: Tensor
    weights_TK: Tensor
