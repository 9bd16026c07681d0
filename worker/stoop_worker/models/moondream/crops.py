"""Cuts an image's crops on the device that encodes them. H rows, W columns, C channels, N crops."""

from torch import Tensor

from stoop_worker.images.tiling import CropGeometry, select_tiling
from stoop_worker.kernels.resize import resize

__all__ = ["cut_on_device"]


def cut_on_device(pixels_HWC: Tensor, geometry: CropGeometry, into_NHWC: Tensor) -> None:
    """Write the crops to encode to uint8 `into_NHWC`, with the same cuts as `stoop_worker.images.cut`.

    The global crop comes first, then the local ones row by row; if the only local crop equals it, just the global one.
    """
    assert geometry.resize == "pillow", "the front cuts images that libvips resizes"
    height, width, _ = pixels_HWC.shape
    tiling = select_tiling(height, width, geometry)
    side, window = geometry.crop_size, geometry.window
    resize(pixels_HWC, side, side, into_HWC=into_NHWC[0])
    if tiling.count == 1:
        return
    resized_HWC = resize(pixels_HWC, *tiling.size(geometry))
    local = resized_HWC.unfold(0, side, window).unfold(1, side, window).permute(0, 1, 3, 4, 2)
    into_NHWC[1:].view(local.shape).copy_(local)
