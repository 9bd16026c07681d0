"""The media of a request: images and windows of sound."""

from collections.abc import Sequence

from stoop_worker.audio import Mel
from stoop_worker.images import Image, Jpeg, Picture

__all__ = ["Media", "images_of", "whole_images_of"]

Media = Picture | Mel
"""An image, cut into crops or whole or still encoded, or a window of a recording.

The device decodes and cuts a whole image, and resizes one that is `fitted`, which is quick only on a GPU.
"""


def images_of(media: Sequence[Media]) -> list[Picture]:
    """Return media that are all images."""
    images = [each for each in media if not isinstance(each, Mel)]
    assert len(images) == len(media), "a model of images takes no sound"
    return images


def whole_images_of(media: Sequence[Media]) -> list[Image | Jpeg]:
    """Return media that are all images, and not cut."""
    images = [each for each in media if isinstance(each, Image | Jpeg)]
    assert len(images) == len(media), "this model takes whole images"
    return images
