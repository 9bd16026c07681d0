"""Bytes to crops: pure functions, numpy, Pillow and libjpeg-turbo, no torch."""

from worker.images.crops import Crops, cut
from worker.images.load import Allocate, Image, ImageLimits, load
from worker.images.tiling import CropGeometry, Tiling, select_tiling

__all__ = ["Allocate", "CropGeometry", "Crops", "Image", "ImageLimits", "Tiling", "cut", "load", "select_tiling"]
