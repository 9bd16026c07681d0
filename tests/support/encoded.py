"""Images encoded by the parts of the vision encoder, without graphs."""

from collections.abc import Sequence

from torch import Tensor

from stoop_worker.images import Crops, Image
from stoop_worker.models.moondream import vision
from stoop_worker.models.moondream.model import Moondream

__all__ = ["encode_images"]


def encode_images(model: Moondream, images: Sequence[Crops | Image]) -> list[Tensor]:
    """Return the embeddings (P, C) of each image."""
    weights, config = model.weights.vision, model.config.vision
    crops = vision.crops_on_device(images, config, model.device)
    features = vision.features(crops, weights, config, dtype=model.dtype)
    return list(vision.embeddings(features, images, weights, config).unbind(0))
