"""An image's crops, cut on the device that encodes them. H and W rows and columns, C channels, N crops."""

from torch import Tensor

from worker.images.tiling import CropGeometry, select_tiling
from worker.kernels.resize import resize

__all__ = ["cut_on_device"]


def cut_on_device(pixels_HWC: Tensor, geometry: CropGeometry, into_NHWC: Tensor) -> None:
    """Write the crops of uint8 pixels that the encoder sees, as `worker.images.cut` cuts them, to uint8 `into_NHWC`.

    The global crop is first, then the local ones row by row; where the one local crop is the global one, only that.
    """
    height, width, _ = pixels_HWC.shape
    tiling = select_tiling(height, width, geometry)
    side, window = geometry.crop_size, geometry.window
    resize(pixels_HWC, side, side, into_HWC=into_NHWC[0])
    if tiling.count == 1:
        return
    resized_HWC = resize(pixels_HWC, *tiling.size(geometry))
    local = resized_HWC.unfold(0, side, window).unfold(1, side, window).permute(0, 1, 3, 4, 2)
    into_NHWC[1:].view(local.shape).copy_(local)
