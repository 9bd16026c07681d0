"""The mixture of experts in Moondream 3's later layers. T rows (may stand for several leading dims), C model dim."""

from torch import Tensor

from stoop_worker.kernels import moe as kernel
from stoop_worker.models.blocks.layers import MLP, Rows, linear, mlp
from stoop_worker.models.moondream.weights import MoE

__all__ = ["feed_forward"]


def feed_forward(x_TC: Rows, weights: MLP | MoE, adapter: kernel.ExpertAdapter | None = None) -> Tensor:
    """Return the MLP of x, or its mixture of experts, which the adapter corrects."""
    if isinstance(weights, MLP):
        return mlp(x_TC, weights)
    assert isinstance(x_TC, Tensor), "experts take plain rows"
    flat_TC = x_TC.flatten(0, -2)
    routing = kernel.route(linear(flat_TC, weights.router), weights.chosen)
    return kernel.mixture(flat_TC, routing, weights.up, weights.down, adapter).view_as(x_TC)
