"""Turns encoded images into pixels and crops: pure functions over numpy, Pillow and libjpeg-turbo, without torch.

load.py         decodes bytes to RGB pixels within the worker's limits
structure/      drops metadata, and refuses files that would keep a decoder busy too long
measure.py      the memory that a decoded image takes, from its header
preparation.py  cuts or resizes an image, as a family wants it
patches.py      resizes an image to whole groups of patches
tiling.py       chooses the grid of local crops for an image's size
crops.py        cuts pixels into one global crop and the local ones
resize.py       resizes pixels by Pillow or libvips
pool.py         the threads that decode and cut
undecoded.py    JPEGs that a GPU decodes
"""

from stoop_worker.images.crops import Crops, cut
from stoop_worker.images.load import Allocate, Image, ImageLimits, load
from stoop_worker.images.measure import decoded_bytes, quickly_decoded_bytes
from stoop_worker.images.patches import ANY_PIXELS, PatchRule, PixelLimits, fit, fitting_size
from stoop_worker.images.pool import image_pool
from stoop_worker.images.preparation import Picture, Preparation, bytes_of_picture, made_ready
from stoop_worker.images.resize import RESIZERS, check_resizer
from stoop_worker.images.tiling import CropGeometry, Tiling, select_tiling
from stoop_worker.images.undecoded import Jpeg, left_undecoded

__all__ = [
    "ANY_PIXELS",
    "RESIZERS",
    "Allocate",
    "CropGeometry",
    "Crops",
    "Image",
    "ImageLimits",
    "Jpeg",
    "PatchRule",
    "Picture",
    "PixelLimits",
    "Preparation",
    "Tiling",
    "bytes_of_picture",
    "check_resizer",
    "cut",
    "decoded_bytes",
    "fit",
    "fitting_size",
    "image_pool",
    "left_undecoded",
    "load",
    "made_ready",
    "quickly_decoded_bytes",
    "select_tiling",
]
