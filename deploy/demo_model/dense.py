"""An auxiliary loss for the encoder, used only in training: each patch predicts the thing at its place.

G groups of patches, P patches of a group, K things, D channels. The encoder learns from it long before the decoder is
good enough to train it.
"""

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional

from deploy.demo_model.pictures.scenes import COLOURS
from deploy.demo_model.pictures.shapes import KINDS

__all__ = ["colour_of", "dense_loss", "dense_shapes"]

_OUTPUTS = 1 + len(KINDS) + 1 + len(COLOURS) + 1 + 4  # kind, colour, holds a centre, offset and size


def dense_shapes(dim: int) -> tuple[int, int]:
    """Return the shape of the layer that reads `dim` features."""
    return _OUTPUTS, dim


def colour_of(rgb_K3: Tensor) -> Tensor:
    """Return the number of the colour name nearest to each colour."""
    named = torch.tensor(list(COLOURS.values()), dtype=torch.float32, device=rgb_K3.device)
    return torch.cdist(rgb_K3.float(), named).argmin(-1)


def dense_loss(
    features_GPD: Tensor, layer: Mapping[str, Tensor], centres_GP2: Tensor, patch_G2: Tensor, things_GK8: Tensor
) -> Tensor:
    """Return the loss of predicting the kind, colour and box of the thing at each patch from the features.

    `centres_GP2` and `patch_G2` are the patches' centres and sizes as fractions of the image.
    """
    kind_GK = things_GK8[..., 0]
    away_GPK2 = (centres_GP2[:, :, None] - things_GK8[:, None, :, 1:3]).abs()
    reach_GK2 = things_GK8[..., 3:5] / 2 + 0.5 * patch_G2[:, None]
    far_GPK = (away_GPK2 / reach_GK2[:, None]).amax(-1).masked_fill(kind_GK[:, None] < 0, 9.0)
    nearest_GP = far_GPK.argmin(-1)
    inside_GP = far_GPK.amin(-1) < 1
    thing_GP8 = torch.gather(things_GK8, 1, nearest_GP[..., None].expand(*nearest_GP.shape, 8))
    offset_GP2 = (thing_GP8[..., 1:3] - centres_GP2) / patch_G2[:, None]
    holds_GP = inside_GP & (offset_GP2.abs().amax(-1) <= 0.5)

    predicted = functional.linear(features_GPD, layer["weight"], layer["bias"]).float()
    kinds, colours, holds, shape = torch.split(predicted, [1 + len(KINDS), 1 + len(COLOURS), 1, 4], dim=-1)
    kind_GP = torch.where(inside_GP, thing_GP8[..., 0].long() + 1, 0)
    colour_GP = torch.where(inside_GP, colour_of(thing_GP8[..., 5:8]) + 1, 0)
    loss_GP = functional.cross_entropy(kinds.movedim(-1, 1), kind_GP, reduction="none")
    loss_GP = loss_GP + functional.cross_entropy(colours.movedim(-1, 1), colour_GP, reduction="none")
    loss_GP = loss_GP + functional.binary_cross_entropy_with_logits(holds[..., 0], holds_GP.float(), reduction="none")
    wanted = torch.cat((offset_GP2.clamp(-4, 4), thing_GP8[..., 3:5].clamp(min=1e-3).log2() + 4), dim=-1)
    boxes_GP = functional.smooth_l1_loss(shape, wanted, reduction="none", beta=0.1).mean(-1)
    inside = inside_GP.float()
    # the few patches with a thing weigh as much as the many without one
    share_GP = inside / inside.sum().clamp(min=1) + (1 - inside) / (1 - inside).sum().clamp(min=1)
    return (loss_GP * share_GP).sum() + 2 * (boxes_GP * inside).sum() / inside.sum().clamp(min=1)
