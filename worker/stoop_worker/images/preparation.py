"""A family's preparation of images: cutting them into crops, resizing them to whole patches, or nothing."""

from stoop_worker.images.crops import Crops, cut
from stoop_worker.images.load import Allocate, Image
from stoop_worker.images.patches import ANY_PIXELS, PatchRule, PixelLimits, fit, fit_later
from stoop_worker.images.tiling import CropGeometry

__all__ = ["Preparation", "made_ready"]

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
