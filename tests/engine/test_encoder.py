"""The encoder's fixed places, with work that is kept and called again in place of CUDA graphs."""

import torch

from tests.engine.kept_work import KeptWork
from tests.engine.micro import crops_of, micro_moondream
from worker.engine.encoder import Encoder
from worker.model import vision


@torch.inference_mode()
def test_captured_or_not_images_are_encoded_alike() -> None:
    model, graphs = micro_moondream(), KeptWork()
    encoder = Encoder(model, model.weights.vision, graphs, usual_crops=6, mark=lambda: None)
    encoder.warm_up()
    # one crop each, or several; six crops together, and more than were captured
    steps = [[(0, 8)], [(1, 20)], [(0, 8), (1, 20)], [(2, 8)], [(1, 20), (3, 20)], [(1, 20)]]
    for step in steps:
        images = [crops_of(number, side, side) for number, side in step]
        found = encoder.encode(images)
        expected = vision.encode(
            images, model.weights.vision, model.config.vision, device=model.device, dtype=model.dtype
        )
        assert found is not None
        for ours, theirs in zip(found, expected, strict=True):
            torch.testing.assert_close(ours, theirs)
    assert [key[1] for key in graphs.replayed] == [1, 5, 6, 1, 5]  # type: ignore[index]
