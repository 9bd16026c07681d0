"""Bytes to crops: pure functions, numpy and Pillow, no torch."""

from worker.images.crops import Crops, cut
from worker.images.load import Image, ImageLimits, load
from worker.images.tiling import CropGeometry, Tiling, select_tiling

__all__ = ["CropGeometry", "Crops", "Image", "ImageLimits", "Tiling", "cut", "load", "select_tiling"]
