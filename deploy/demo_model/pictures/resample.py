"""Repeats on tensors what files and the worker do to pixels: JPEG's losses and Pillow's LANCZOS.

B images, H rows, W columns, three channels; pixels are float32 levels from 0 to 255.
"""

from functools import lru_cache
from math import cos, pi, sqrt

import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["jpeg", "lanczos", "lanczos_matrix"]

# the tables of the JPEG standard's annex K
_LUMA = (
    (16, 11, 10, 16, 24, 40, 51, 61),
    (12, 12, 14, 19, 26, 58, 60, 55),
    (14, 13, 16, 24, 40, 57, 69, 56),
    (14, 17, 22, 29, 51, 87, 80, 62),
    (18, 22, 37, 56, 68, 109, 103, 77),
    (24, 35, 55, 64, 81, 104, 113, 92),
    (49, 64, 78, 87, 103, 121, 120, 101),
    (72, 92, 95, 98, 112, 100, 103, 99),
)
_CHROMA = (
    (17, 18, 24, 47, 99, 99, 99, 99),
    (18, 21, 26, 66, 99, 99, 99, 99),
    (24, 26, 56, 99, 99, 99, 99, 99),
    (47, 66, 99, 99, 99, 99, 99, 99),
    *((99,) * 8,) * 4,
)
_YCC = ((0.299, 0.587, 0.114), (-0.168736, -0.331264, 0.5), (0.5, -0.418688, -0.081312))
_RGB = ((1.0, 0.0, 1.402), (1.0, -0.344136, -0.714136), (1.0, 1.772, 0.0))


def jpeg(pixels_B3HW: Tensor, quality_B: Tensor) -> Tensor:
    """Return the pixels as decoded from a JPEG file with each image's quality and halved chroma."""
    height, width = pixels_B3HW.shape[-2:]
    padded = functional.pad(pixels_B3HW, (0, -width % 16, 0, -height % 16), mode="replicate")
    ycc = torch.einsum("oc,bchw->bohw", padded.new_tensor(_YCC), padded)
    luma = _rounded(ycc[:, :1] - 128, _table(_LUMA, quality_B)) + 128
    chroma = _rounded(functional.avg_pool2d(ycc[:, 1:], 2), _table(_CHROMA, quality_B))
    chroma = functional.interpolate(chroma, scale_factor=2, mode="bilinear", align_corners=False)
    back = torch.einsum("oc,bchw->bohw", padded.new_tensor(_RGB), torch.cat((luma, chroma), dim=1))
    return back[..., :height, :width].round().clamp(0, 255)


def lanczos(pixels_B3HW: Tensor, height: int, width: int) -> Tensor:
    """Return the pixels resized as by Pillow: rows first, then columns, rounded after each."""
    if pixels_B3HW.shape[-2:] == (height, width):
        return pixels_B3HW
    across = lanczos_matrix(pixels_B3HW.shape[-1], width, pixels_B3HW.device)
    down = lanczos_matrix(pixels_B3HW.shape[-2], height, pixels_B3HW.device)
    narrowed = (pixels_B3HW @ across.T).round().clamp(0, 255)
    return (down @ narrowed).round().clamp(0, 255)


@lru_cache(maxsize=256)
def lanczos_matrix(inputs: int, outputs: int, device: torch.device) -> Tensor:
    """Return the (outputs, inputs) float32 weights of Pillow's LANCZOS filter along one axis."""
    scale = inputs / outputs
    stretch = max(scale, 1.0)
    # computed on the device, because sizes change with every batch and thousands of sines take the host too long
    centres = ((torch.arange(outputs, device=device, dtype=torch.float64) + 0.5) * scale)[:, None]
    first = (centres - 3 * stretch + 0.5).trunc().clamp(min=0)
    last = (centres + 3 * stretch + 0.5).trunc().clamp(max=inputs)
    column = torch.arange(inputs, device=device, dtype=torch.float64)[None, :]
    offset = (column + 0.5 - centres) / stretch
    inside = (column >= first) & (column < last) & (offset.abs() < 3)
    weights = torch.where(inside, torch.sinc(offset) * torch.sinc(offset / 3), 0)
    return (weights / weights.sum(1, keepdim=True)).float()


def _table(base: tuple[tuple[int, ...], ...], quality_B: Tensor) -> Tensor:
    scale_B = torch.where(quality_B < 50, 5000 / quality_B, 200 - 2 * quality_B)
    table = torch.tensor(base, dtype=torch.float32, device=quality_B.device)
    return ((table * scale_B[:, None, None] + 50) / 100).floor().clamp(1, 255)


def _rounded(plane_BCHW: Tensor, table_B88: Tensor) -> Tensor:
    """Round every 8 x 8 block's cosine coefficients to multiples of the table's steps."""
    wave = torch.tensor(
        [[cos((2 * x + 1) * u * pi / 16) * (sqrt(1 / 8) if u == 0 else 0.5) for x in range(8)] for u in range(8)],
        device=plane_BCHW.device,
    )
    scenes, channels, height, width = plane_BCHW.shape
    blocks = plane_BCHW.reshape(scenes, channels, height // 8, 8, width // 8, 8)
    step = table_B88[:, None, None, :, None, :]
    coefficients = torch.einsum("uy,bciyjx,vx->bciujv", wave, blocks, wave)
    coefficients = (coefficients / step).round() * step
    return torch.einsum("uy,bciujv,vx->bciyjx", wave, coefficients, wave).flatten(4).flatten(2, 3)
