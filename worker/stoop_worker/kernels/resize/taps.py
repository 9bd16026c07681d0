"""The coefficients of Pillow's LANCZOS and BICUBIC along one axis, bit-identical to Pillow's."""

from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import torch
from PIL import __version__ as pillow_version
from torch import Tensor

__all__ = ["BITS", "Filter", "Taps", "columns_first", "device_taps", "taps"]

BITS = 22
"""The fraction bits of the integer coefficients; sums of their products with pixels fit 32 bits."""

_SHARPNESS = -0.5  # of Keys's cubic
_CHOOSES_ORDER = int(pillow_version.split(".")[0]) >= 13

_Values = npt.NDArray[np.float64]


class Filter(Enum):
    """Pillow's filters by name; the value is the reach of each in pixels, when it enlarges."""

    LANCZOS = 3
    BICUBIC = 2


@dataclass(frozen=True, slots=True)
class Taps:
    """Output pixel i is the sum of inputs from `first[i]` on, times `weights[:, i]`; unused weights are zero.

    `first` (out,) and `weights` (taps, out) are int32.
    """

    first: npt.NDArray[np.int32]
    weights: npt.NDArray[np.int32]


def taps(size: int, resized: int, by: Filter) -> Taps:
    """Return the taps that resize an axis of `size` pixels to `resized`."""
    scale = size / resized
    stretch = max(scale, 1.0)
    reach = by.value * stretch
    centres = (np.arange(resized) + 0.5) * scale
    first = np.maximum((centres - reach + 0.5).astype(np.int64), 0)
    end = np.minimum((centres + reach + 0.5).astype(np.int64), size)
    inputs = first + np.arange((end - first).max())[:, None]
    weights = np.where(inputs < end, _CURVES[by]((inputs - centres + 0.5) * (1 / stretch)), 0.0)
    weights /= weights.sum(axis=0)
    fixed = np.trunc(weights * (1 << BITS) + np.copysign(0.5, weights))
    return Taps(first.astype(np.int32), fixed.astype(np.int32))


def columns_first(high: int, wide: int, height: int, width: int) -> bool:
    """Return whether Pillow (13) resizes columns before rows: it does if the height shrinks far more than the width.

    Levels are rounded between the two passes, so the order affects the result.
    """
    return _CHOOSES_ORDER and height < high and high - height > 2 * (wide - width)


@lru_cache(maxsize=512)
def device_taps(size: int, resized: int, by: Filter, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return `first` and `weights` of `taps` on a device, without waiting for it."""
    found = taps(size, resized, by)
    packed = torch.from_numpy(np.concatenate((found.weights, found.first[None])))
    if device.type == "cuda":
        packed = packed.pin_memory()
    on_device = packed.to(device, non_blocking=True)
    return on_device[-1], on_device[:-1]


def _lanczos(x: _Values) -> _Values:
    return np.where(np.abs(x) < Filter.LANCZOS.value, np.sinc(x) * np.sinc(x / Filter.LANCZOS.value), 0.0)


def _bicubic(x: _Values) -> _Values:
    x = np.abs(x)
    near = ((_SHARPNESS + 2) * x - (_SHARPNESS + 3)) * x * x + 1
    far = (((x - 5) * x + 8) * x - 4) * _SHARPNESS
    return np.where(x < 1, near, np.where(x < Filter.BICUBIC.value, far, 0.0))


_CURVES = {Filter.LANCZOS: _lanczos, Filter.BICUBIC: _bicubic}
