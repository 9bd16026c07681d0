"""An image's crops, cut on the device that encodes them. H and W rows and columns, C channels, N crops."""

import torch
from torch import Tensor

from worker.images.tiling import CropGeometry, select_tiling
from worker.kernels.resize import resize

__all__ = ["cut_on_device"]


def cut_on_device(pixels_HWC: Tensor, geometry: CropGeometry) -> Tensor:
    """Return the crops of uint8 pixels that the encoder sees, as `worker.images.cut` cuts them: crops_NHWC uint8.

    The global crop is first, then the local ones row by row; where the one local crop is the global one, only that.
    """
    height, width, channels = pixels_HWC.shape
    tiling = select_tiling(height, width, geometry)
    side, window = geometry.crop_size, geometry.window
    global_NHWC = resize(pixels_HWC, side, side)[None]
    if tiling.count == 1:
        return global_NHWC
    resized_HWC = resize(pixels_HWC, *tiling.size(geometry))
    local = resized_HWC.unfold(0, side, window).unfold(1, side, window).permute(0, 1, 3, 4, 2)
    return torch.cat((global_NHWC, local.reshape(tiling.count, side, side, channels)))
