"""A mixture of experts: the choice of experts for each token, and the weighted sum of their gated MLPs.

    route(logits_TE, count) -> Routing(experts_TK, weights_TK)
    mixture(x_TC, routing, up, down, adapter=None) -> out_TC
    expert_outputs(x_TC, routing, up, down, adapter=None) -> ExpertOutputs(found_PC, weights_TK)

T tokens, E experts, K chosen for a token, P = T K pairs, C model dim, F inner dim of an expert. `up` is an
`ExpertLinear` of (E, 2 F, C), `down` one of (E, C, F), in the dtype of x or in float8_e4m3fn with float32 scales
(E, rows).

weights.py    the values above
routing.py    the kernels that choose experts and sort tokens by expert
tiles.py      which expert and which tokens a program takes
products.py   the products of all experts in one launch
corrections.py what adapters add to them
kernel.py     the whole mixture
reference.py  both functions in plain torch
"""

from torch import Tensor

from stoop_worker.kernels.backend import uses_kernel
from stoop_worker.kernels.moe import reference
from stoop_worker.kernels.moe.weights import ExpertAdapter, ExpertLinear, ExpertOutputs, Routing
from stoop_worker.kernels.profiling import named_part

__all__ = ["ExpertAdapter", "ExpertLinear", "ExpertOutputs", "Routing", "expert_outputs", "mixture", "route"]


def route(logits_TE: Tensor, count: int) -> Routing:
    """Choose the experts of each token; see `reference.route`."""
    with named_part("stoop.experts.route"):
        if uses_kernel(logits_TE):
            from stoop_worker.kernels.moe import kernel

            return kernel.route(logits_TE, count)
        return reference.route(logits_TE, count)


def mixture(
    x_TC: Tensor, routing: Routing, up: ExpertLinear, down: ExpertLinear, adapter: ExpertAdapter | None = None
) -> Tensor:
    """Return the weighted sum of the chosen experts' outputs; see `reference.mixture`."""
    with named_part("stoop.experts"):
        if uses_kernel(x_TC):
            from stoop_worker.kernels.moe import kernel

            return kernel.mixture(x_TC, routing, up, down, adapter)
        return reference.mixture(x_TC, routing, up, down, adapter)


def expert_outputs(
    x_TC: Tensor, routing: Routing, up: ExpertLinear, down: ExpertLinear, adapter: ExpertAdapter | None = None
) -> ExpertOutputs:
    """Return the outputs of each token's experts, for a later kernel to add up; see `reference.expert_outputs`."""
    with named_part("stoop.experts"):
        if uses_kernel(x_TC):
            from stoop_worker.kernels.moe import kernel

            return kernel.expert_outputs(x_TC, routing, up, down, adapter)
        return reference.expert_outputs(x_TC, routing, up, down, adapter)
