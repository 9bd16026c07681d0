"""Resizes pixels to any height and width, by Pillow's LANCZOS or as libvips does it.

The two differ where an image is enlarged, because libvips then interpolates bicubically, and where it is much reduced,
because libvips first averages blocks of pixels. In photos the difference is small.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Final

import numpy as np
import numpy.typing as npt
from PIL import Image as Pillow

from stoop_worker.errors import ConfigError

__all__ = ["RESIZERS", "check_resizer", "resizer"]

RESIZERS: Final = ("pillow", "libvips")

_Pixels = npt.NDArray[np.uint8]


def resizer(pixels: _Pixels, by: str) -> Callable[[int, int], _Pixels]:
    """Return the function that resizes RGB pixels (height, width, 3) to a height and a width."""
    if by == "libvips":
        return _libvips_resizer(pixels)
    source = Pillow.fromarray(pixels)
    return lambda height, width: np.asarray(source.resize((width, height), Pillow.Resampling.LANCZOS))


def check_resizer(by: str) -> None:
    """Raise a `ConfigError` if the library of this resizer is missing."""
    if by == "libvips":
        try:
            _pyvips()
        except (ImportError, OSError) as error:
            raise ConfigError(
                f"vision.resize in config.json is libvips, which cannot be loaded ({error}): pip install 'stoop[vips]'"
            ) from error


def _libvips_resizer(pixels: _Pixels) -> Callable[[int, int], _Pixels]:
    image, (height, width, _) = _pyvips().Image.new_from_array(pixels), pixels.shape

    def resized(to_height: int, to_width: int) -> _Pixels:
        found: _Pixels = image.resize(to_width / width, vscale=to_height / height).numpy()
        return found

    return resized


def _pyvips() -> ModuleType:
    import pyvips  # type: ignore[import-untyped, import-not-found, unused-ignore]

    pyvips.cache_set_max(0)  # its cache of operations would keep the images of ended jobs
    return pyvips  # type: ignore[no-any-return, unused-ignore]
