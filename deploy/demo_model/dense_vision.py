"""The projection of one image's features, for training. P patches of a crop, D feature dim, C text model dim."""

import torch
from torch import Tensor

from stoop_worker.models.blocks.layers import mlp
from stoop_worker.models.moondream.weights import VisionWeights

__all__ = ["project"]


def project(global_PD: Tensor, local_PD: Tensor, weights: VisionWeights) -> Tensor:
    """Project the global crop's features beside the pooled local ones; returns embeddings (P, C)."""
    return mlp(torch.cat((global_PD, local_PD), dim=-1), weights.proj_mlp)
