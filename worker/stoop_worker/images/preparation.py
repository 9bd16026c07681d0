"""A family's preparation of images: cutting them into crops, resizing them to whole patches, or nothing."""

import numpy as np
import numpy.typing as npt

from stoop_worker.images.crops import Crops, cut
from stoop_worker.images.load import Allocate, Image
from stoop_worker.images.patches import ANY_PIXELS, PatchRule, PixelLimits, fit, fit_later
from stoop_worker.images.tiling import CropGeometry
from stoop_worker.images.undecoded import Jpeg

__all__ = ["Picture", "Preparation", "bytes_of_picture", "made_ready"]

Picture = Crops | Image | Jpeg
"""An image as the engine takes it."""

Preparation = CropGeometry | PatchRule | None
"""The rule by which images are made ready; None leaves them as they are."""


def made_ready(
    image: Image,
    preparation: Preparation,
    allocate: Allocate | None = None,
    *,
    pixels: PixelLimits = ANY_PIXELS,
    on_device: bool = False,
) -> Crops | Image:
    """Return the image cut or resized; the pixels lie in the array that `allocate` returns, if it is given.

    The limits `pixels` change only the rule of a model that reads images at their own resolution. With `on_device` the
    device that encodes the image resizes it, if it is not much too large, and the pixels stay as they are.
    """
    match preparation:
        case PatchRule() if on_device:
            return fit_later(image, preparation.within(pixels), allocate)
        case PatchRule():
            return fit(image, preparation.within(pixels), allocate)
        case CropGeometry():
            return cut(image, preparation, allocate)
        case _:
            return image


def bytes_of_picture(picture: Picture) -> npt.NDArray[np.uint8]:
    """Return the pixels of an image, or its encoded bytes, without a copy."""
    return picture.encoded if isinstance(picture, Jpeg) else picture.pixels
