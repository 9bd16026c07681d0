"""Draws many scenes of one size at once, on tensors, and cuts them into crops, as `drawing` and the worker do for one.

B scenes, K things a scene at most, H rows, W columns, N crops (the global one first), S a crop's side.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from deploy.demo_model.pictures.resample import jpeg, lanczos
from deploy.demo_model.pictures.scenes import Scene
from deploy.demo_model.pictures.shapes import ATLAS_REACH, KINDS, atlas
from stoop_worker.images import CropGeometry, select_tiling

__all__ = ["MOST_THINGS", "Sheet", "crops", "pixels"]

MOST_THINGS = 10
_ATLAS_SIDE = 192


@dataclass(frozen=True, slots=True)
class Sheet:
    """Scenes as arrays: `things_BK8` kind (-1: none), x, y, w, h, red, green, blue; `grounds_B9` the backgrounds."""

    things_BK8: Tensor
    grounds_B9: Tensor
    width: int
    height: int

    @classmethod
    def of(cls, scenes: Sequence[Scene]) -> "Sheet":
        """Pack scenes of one size."""
        things = np.full((len(scenes), MOST_THINGS, 8), -1, dtype=np.float32)
        for row, scene in enumerate(scenes):
            for column, thing in enumerate(scene.things):
                look = (KINDS.index(thing.kind), thing.x, thing.y, thing.w, thing.h, *thing.rgb)
                things[row, column] = look
        grounds = [
            (*ground.start, *ground.end, ground.downwards, ground.grain, ground.quality or 0)
            for ground in (scene.background for scene in scenes)
        ]
        first = scenes[0]
        return cls(torch.from_numpy(things), torch.tensor(grounds, dtype=torch.float32), first.width, first.height)

    def pin_memory(self) -> "Sheet":
        """Return the sheet in pinned memory, so that the device can copy it asynchronously."""
        return Sheet(self.things_BK8.pin_memory(), self.grounds_B9.pin_memory(), self.width, self.height)

    def to(self, device: torch.device) -> "Sheet":
        """Return the sheet on a device."""
        things = self.things_BK8.to(device, non_blocking=True)
        return Sheet(things, self.grounds_B9.to(device, non_blocking=True), self.width, self.height)


def pixels(sheet: Sheet) -> Tensor:
    """Return the scenes' decoded images, pixels_B3HW float32 with whole levels; each call draws new grain."""
    canvas = _backgrounds(sheet)
    signed = _atlas(canvas.device)
    for slot in range(MOST_THINGS):
        _paint(canvas, sheet.things_BK8[:, slot], signed)
    canvas += torch.randn_like(canvas) * sheet.grounds_B9[:, 7, None, None, None]
    canvas = canvas.round().clamp(0, 255)
    quality_B = sheet.grounds_B9[:, 8]
    lossy = jpeg(canvas, quality_B.clamp(min=1))
    return torch.where((quality_B > 0)[:, None, None, None], lossy, canvas)


def crops(pixels_B3HW: Tensor, geometry: CropGeometry) -> Tensor:
    """Return crops_BNSS3 uint8; a (1, 1) tiling gives only the global crop."""
    height, width = pixels_B3HW.shape[-2:]
    tiling, side = select_tiling(height, width, geometry), geometry.crop_size
    cut = [lanczos(pixels_B3HW, side, side)]
    if tiling.count > 1:
        resized = lanczos(pixels_B3HW, *tiling.size(geometry))
        tops = [geometry.window * row for row in range(tiling.rows)]
        lefts = [geometry.window * col for col in range(tiling.cols)]
        cut += [resized[..., top : top + side, left : left + side] for top in tops for left in lefts]
    return torch.stack(cut, dim=1).to(torch.uint8).permute(0, 1, 3, 4, 2)


@lru_cache(maxsize=4)
def _atlas(device: torch.device) -> Tensor:
    return torch.from_numpy(atlas(_ATLAS_SIDE)).to(device)


def _backgrounds(sheet: Sheet) -> Tensor:
    device = sheet.things_BK8.device
    down_H = (torch.arange(sheet.height, device=device) + 0.5) / sheet.height
    across_W = (torch.arange(sheet.width, device=device) + 0.5) / sheet.width
    downwards = sheet.grounds_B9[:, 6, None, None, None] > 0
    share = torch.where(downwards, down_H[:, None], across_W[None, :])
    start, end = sheet.grounds_B9[:, 0:3, None, None], sheet.grounds_B9[:, 3:6, None, None]
    return start + (end - start) * share


def _paint(canvas_B3HW: Tensor, things_B8: Tensor, signed: Tensor) -> None:
    height, width = canvas_B3HW.shape[-2:]
    device = canvas_B3HW.device
    kind, x, y, _, h = things_B8[:, :5].unbind(1)
    half = (h * height / 2).clamp(min=1)
    u_BW = (torch.arange(width, device=device) + 0.5 - (x * width)[:, None]) / half[:, None]
    v_BH = (torch.arange(height, device=device) + 0.5 - (y * height)[:, None]) / half[:, None]
    size = len(canvas_B3HW), height, width
    grid = torch.stack((u_BW[:, None, :].expand(size), v_BH[:, :, None].expand(size)), dim=-1) / ATLAS_REACH
    texture = signed[kind.clamp(min=0).long()][:, None]
    distance = functional.grid_sample(texture, grid, mode="bilinear", padding_mode="border", align_corners=False)
    cover = (0.5 - distance * half[:, None, None, None]).clamp(0, 1) * (kind >= 0)[:, None, None, None]
    canvas_B3HW += (things_B8[:, 5:8, None, None] - canvas_B3HW) * cover
