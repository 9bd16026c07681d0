"""The encoder's fixed places, with work that is kept and called again in place of CUDA graphs."""

import numpy as np
import torch

from stoop_worker.images import Crops, Image, cut
from stoop_worker.models.moondream.encoder import Encoder
from tests.engine.kept_work import KeptWork
from tests.engine.micro import MICRO, micro_moondream
from tests.support.encoded import encode_images


def picture(number: int, side: int) -> Crops | Image:
    """Return a noisy image: alternately whole or in crops."""
    image = Image.of(np.random.default_rng(number).integers(0, 256, (side, side, 3), dtype=np.uint8))
    return image if number % 2 else cut(image, MICRO.vision.geometry)


@torch.inference_mode()
def test_captured_or_not_images_are_encoded_alike() -> None:
    model, graphs = micro_moondream(), KeptWork()
    encoder = Encoder(model.weights.vision, MICRO.vision, device=model.device, dtype=model.dtype)
    encoder.capture(graphs, usual_crops=6)
    # one crop each, or several; six crops together, and more than were captured
    steps = [[(0, 8)], [(1, 20)], [(2, 20)], [(0, 8), (1, 20)], [(2, 8)], [(1, 20), (4, 20)], [(3, 8), (1, 20)]]
    for step in steps:
        images = [picture(number, side) for number, side in step]
        found = encoder.encode(images, lambda: None)
        expected = encode_images(model, images)
        for ours, theirs in zip(found, expected, strict=True):
            torch.testing.assert_close(ours, theirs)
    assert [key[1] for key in graphs.replayed] == [1, 5, 5, 6, 1, 6]  # type: ignore[index]
