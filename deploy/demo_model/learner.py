"""Computes the loss of one training step with the model's own functions.

B scenes, N crops a scene, P patches, K things, S steps of a page, T = prefix + S, C model dim, D encoder dim.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import isqrt

import torch
from torch import Tensor
from torch.nn import functional

from deploy.demo_model import dense_text as text
from deploy.demo_model.dense import dense_loss, dense_shapes
from deploy.demo_model.dense_vision import project
from deploy.demo_model.teach import NOTHING, Page
from stoop_worker.images import CropGeometry, Tiling
from stoop_worker.kernels.stitch_pool.reference import stitch_pool
from stoop_worker.models.moondream import region, vision
from stoop_worker.models.moondream.config import ModelConfig
from stoop_worker.models.moondream.weights import Weights

__all__ = ["Class", "Learner", "Pages"]


@dataclass(frozen=True, slots=True)
class Pages:
    """Pages of a batch as tensors: inputs, targets, positions and the lesson of each step.

    `said_R`, `placed_R` and `sized_R` are the flat indices of the steps with a token, a coordinate or a size as target.
    The host computes them, so that the device need not be asked.
    """

    ids_BS: Tensor
    values_BS2: Tensor
    say_BS: Tensor
    at_BS: Tensor
    size_BS2: Tensor
    position_BS: Tensor
    lesson_BS: Tensor
    said_R: Tensor
    placed_R: Tensor
    sized_R: Tensor

    @classmethod
    def of(cls, pages: Sequence[Page]) -> "Pages":
        """Stack pages of one length."""
        stacked = {
            name: torch.stack([torch.from_numpy(getattr(page, name)) for page in pages])
            for name in ("ids", "values", "say", "at", "size", "position", "lesson")
        }
        targets = stacked["say"], stacked["at"], stacked["size"][..., 0]
        return cls(*stacked.values(), *((target.flatten() != NOTHING).nonzero()[:, 0] for target in targets))

    def pin_memory(self) -> "Pages":
        """Return the pages in pinned memory, so that the device can copy them asynchronously."""
        return Pages(*(getattr(self, name).pin_memory() for name in self.__slots__))

    def to(self, device: torch.device) -> "Pages":
        """Return the pages on a device, with ids and targets as int64."""
        moved = (getattr(self, name).to(device, non_blocking=True) for name in self.__slots__)
        return Pages(*(x if x.is_floating_point() else x.long() for x in moved))


@dataclass(frozen=True, slots=True)
class Class:
    """Scenes of one size: `crops_BNSS3` uint8 and the `things_BK8` in them."""

    crops_BNSS3: Tensor
    things_BK8: Tensor
    tiling: Tiling


@dataclass
class Learner:
    """Master weights in float32, computed with in `dtype`; `blur` is the width in bins of a coordinate's target."""

    config: ModelConfig
    tensors: dict[str, Tensor]
    dense: dict[str, Tensor]
    dtype: torch.dtype
    blur: float = 4.0
    most_crops: int = 0  # crops are padded to this number, so that a compiled encoder sees one shape only
    features: Callable[..., Tensor] = vision.features
    forward: Callable[..., Tensor] = text.forward

    def compile(self) -> None:
        """Compile encoder and decoder: the first step takes half a minute longer, every other step a third less."""
        self.features = torch.compile(vision.features, dynamic=False)
        self.forward = torch.compile(text.forward, dynamic=False)

    @staticmethod
    def first_dense(config: ModelConfig) -> dict[str, Tensor]:
        """Return initial weights for the layers that only training has."""
        found: dict[str, Tensor] = {}
        for name, dim in (("crop", config.vision.enc_dim), ("image", config.text.dim)):
            outputs, _ = dense_shapes(dim)
            found |= {f"{name}.weight": torch.zeros(outputs, dim), f"{name}.bias": torch.zeros(outputs)}
        return found

    def losses(self, classes: Sequence[Class], pages: Pages, blank: Pages) -> dict[str, Tensor]:
        """Return the losses of a batch by name; `pages` follow the classes' scenes, `blank` ones have none."""
        weights = Weights.of({name: tensor.to(self.dtype) for name, tensor in self.tensors.items()}, self.config)
        image_BPC, found = self._see(classes, weights)
        hidden_BSC = self._read(image_BPC, pages, weights)
        found["blank"] = self._token_loss(self._read_blank(blank, weights), blank, weights)
        return found | self._marks(hidden_BSC, pages, weights)

    def _see(self, classes: Sequence[Class], weights: Weights) -> tuple[Tensor, dict[str, Tensor]]:
        config = self.config.vision
        crops = [group.crops_BNSS3.flatten(0, 1) for group in classes]
        blank = max(0, self.most_crops - sum(map(len, crops)))
        pixels = torch.cat((*crops, crops[0].new_zeros((blank, *crops[0].shape[1:]))))
        features = self.features(pixels, weights.vision, config, dtype=self.dtype)
        views, crop_losses, start = [], [], 0
        for group in classes:
            scenes, count = group.crops_BNSS3.shape[:2]
            features_BNPD = features[start : start + scenes * count].view(scenes, count, *features.shape[1:])
            start += scenes * count
            views.append((features_BNPD[:, 0], _local(features_BNPD, group.tiling, config.overlap_margin)))
            crop_losses.append(self._crop_loss(features_BNPD, group))
        global_BPD, local_BPD = (torch.cat(side) for side in zip(*views, strict=True))
        image_BPC = project(global_BPD, local_BPD, weights.vision)
        things_BK8 = torch.cat([group.things_BK8 for group in classes])
        centres, patch = _patches(Tiling(1, 1), config.geometry, image_BPC.device)
        scenes = len(image_BPC)
        image_loss = dense_loss(
            image_BPC,
            self._layer("image"),
            centres[:1].expand(scenes, -1, -1),
            patch[:1].expand(scenes, -1),
            things_BK8,
        )
        return image_BPC, {"crop": torch.stack(crop_losses).mean(), "image": image_loss}

    def _crop_loss(self, features_BNPD: Tensor, group: Class) -> Tensor:
        centres_NP2, patch_N2 = _patches(group.tiling, self.config.vision.geometry, features_BNPD.device)
        scenes, count = features_BNPD.shape[:2]
        return dense_loss(
            features_BNPD.flatten(0, 1),
            self._layer("crop"),
            centres_NP2.repeat(scenes, 1, 1),
            patch_N2.repeat(scenes, 1),
            group.things_BK8.repeat_interleave(count, 0),
        )

    def _layer(self, name: str) -> Mapping[str, Tensor]:
        return {part: self.dense[f"{name}.{part}"].to(self.dtype) for part in ("weight", "bias")}

    def _read(self, image_BPC: Tensor, pages: Pages, weights: Weights) -> Tensor:
        ids, prefix = self.config.tokenizer, self.config.text.prefix_attn
        scenes = len(image_BPC)
        first_C = text.embed(torch.tensor([ids.bos_id], device=image_BPC.device), weights.text)
        x_BSC = text.embed(pages.ids_BS, weights.text)
        coordinates = region.write_coordinate(pages.values_BS2[..., 0], weights.region)
        x_BSC = torch.where((pages.ids_BS == ids.coord_id)[..., None], coordinates, x_BSC)
        sizes = region.write_size(pages.values_BS2, weights.region)
        x_BSC = torch.where((pages.ids_BS == ids.size_id)[..., None], sizes, x_BSC)
        x_BTC = torch.cat((first_C.expand(scenes, 1, -1), image_BPC, x_BSC), dim=1)
        start_T = torch.arange(prefix, device=image_BPC.device).expand(scenes, -1)
        positions_BT = torch.cat((start_T, pages.position_BS), dim=1)
        attend = _Attend(prefix, _page_mask(pages.lesson_BS, prefix))
        return self.forward(x_BTC, positions_BT, weights.text, self.config.text, attend)[:, prefix:]

    def _read_blank(self, pages: Pages, weights: Weights) -> Tensor:
        """Read pages without an image: every step sees only the steps before it."""
        x_BSC = text.embed(pages.ids_BS, weights.text)
        return text.forward(x_BSC, pages.position_BS, weights.text, self.config.text, text.dense_attend(0))

    def _token_loss(self, hidden_BSC: Tensor, pages: Pages, weights: Weights) -> Tensor:
        logits = text.logits(hidden_BSC.flatten(0, 1).index_select(0, pages.said_R), weights.text).float()
        losses_R = functional.cross_entropy(logits, pages.say_BS.flatten()[pages.said_R], reduction="none")
        # an answer weighs as the square root of its length
        share_R = _share(pages.say_BS != NOTHING, pages.lesson_BS).flatten()[pages.said_R]
        return (losses_R * share_R).sum() / share_R.sum()

    def _marks(self, hidden_BSC: Tensor, pages: Pages, weights: Weights) -> dict[str, Tensor]:
        hidden_XC = hidden_BSC.flatten(0, 1)
        coordinates = region.coordinate_logits(hidden_XC.index_select(0, pages.placed_R), weights.region).float()
        sizes = region.size_logits(hidden_XC.index_select(0, pages.sized_R), weights.region).float()
        return {
            "say": self._token_loss(hidden_BSC, pages, weights),
            "at": _blurred(coordinates, pages.at_BS.flatten()[pages.placed_R], self.blur),
            "size": _blurred(sizes, pages.size_BS2.flatten(0, 1)[pages.sized_R], 2 * self.blur),
        }


@dataclass(frozen=True)
class _Attend:
    """Attention of the prefix to itself, and of each page's steps to the prefix and their own lesson so far."""

    prefix: int
    mask_B1ST: Tensor

    def __call__(self, layer: int, q_THD: Tensor, k_THD: Tensor, v_THD: Tensor) -> Tensor:
        q, k, v = (x.transpose(1, 2) for x in (q_THD, k_THD, v_THD))
        split = self.prefix
        image = functional.scaled_dot_product_attention(q[:, :, :split], k[:, :, :split], v[:, :, :split])
        steps = functional.scaled_dot_product_attention(q[:, :, split:], k, v, attn_mask=self.mask_B1ST)
        return torch.cat((image, steps), dim=2).transpose(1, 2)


def _page_mask(lesson_BS: Tensor, prefix: int) -> Tensor:
    scenes, steps = lesson_BS.shape
    same_BSS = lesson_BS[:, :, None] == lesson_BS[:, None, :]
    causal_SS = torch.ones(steps, steps, dtype=torch.bool, device=lesson_BS.device).tril()
    seen = torch.ones(scenes, steps, prefix, dtype=torch.bool, device=lesson_BS.device)
    return torch.cat((seen, same_BSS & causal_SS), dim=2)[:, None]


def _share(said_BS: Tensor, lesson_BS: Tensor) -> Tensor:
    """Return each target's weight: one over the square root of the number of targets in its lesson."""
    same_BSS = (lesson_BS[:, :, None] == lesson_BS[:, None, :]).float()
    return (same_BSS @ said_BS.float()[..., None])[..., 0].clamp(min=1).rsqrt()


def _blurred(logits_RN: Tensor, bins_R: Tensor, blur: float) -> Tensor:
    """Return the cross entropy against a bell curve around each bin."""
    line_N = torch.arange(logits_RN.shape[-1], device=logits_RN.device)
    bell_RN = (-0.5 * ((line_N - bins_R[..., None]) / blur) ** 2).softmax(-1)
    return -(bell_RN * logits_RN.log_softmax(-1)).sum(-1).mean()


def _local(features_BNPD: Tensor, tiling: Tiling, margin: int) -> Tensor:
    """Return the result of `stitch_pool` for each scene, computed at once as channels of one image."""
    if tiling.count == 1:
        return features_BNPD[:, 0]
    scenes, _, _, dim = features_BNPD.shape
    side_by_side = features_BNPD[:, 1:].permute(1, 2, 0, 3).flatten(2)
    pooled = stitch_pool(side_by_side, rows=tiling.rows, cols=tiling.cols, margin=margin)
    return pooled.view(-1, scenes, dim).transpose(0, 1)


@lru_cache(maxsize=64)
def _patches(tiling: Tiling, geometry: CropGeometry, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the centres (N, P, 2) and sizes (N, 2) of all crops' patches, x first, as fractions of the image."""
    grid, patch, side = geometry.grid, geometry.patch_size, geometry.crop_size
    line = (torch.arange(grid) + 0.5) * patch
    cell = torch.stack((line[None].expand(grid, grid), line[:, None].expand(grid, grid)), dim=-1).flatten(0, 1)
    centres, sizes = [cell / side], [torch.tensor([patch / side, patch / side])]
    if tiling.count > 1:
        height, width = tiling.size(geometry)
        whole = torch.tensor([width, height])
        for index in range(tiling.count):
            corner = torch.tensor([index % tiling.cols, index // tiling.cols]) * geometry.window
            centres.append((cell + corner) / whole)
            sizes.append(patch / whole)
    assert isqrt(len(cell)) == grid
    return torch.stack(centres).to(device), torch.stack(sizes).to(device)
