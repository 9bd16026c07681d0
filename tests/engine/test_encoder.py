"""The encoder's fixed places, with work that is kept and called again in place of CUDA graphs."""

from collections.abc import Callable, Hashable

import torch
from torch import Tensor

from tests.engine.micro import crops_of, micro_moondream
from worker.engine.encoder import Encoder
from worker.engine.graphs import Graphs
from worker.model import vision


class KeptWork(Graphs):
    """Runs again what was captured; counts how often."""

    def __init__(self) -> None:
        self.kept: dict[Hashable, Callable[[], Tensor]] = {}
        self.replayed: list[Hashable] = []

    def __contains__(self, key: Hashable) -> bool:
        return key in self.kept

    def capture(self, key: Hashable, work: Callable[[], Tensor]) -> None:
        work()
        self.kept[key] = work

    def replay(self, key: Hashable) -> Tensor:
        self.replayed.append(key)
        return self.kept[key]()


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
        for ours, theirs in zip(found, expected, strict=True):
            torch.testing.assert_close(ours, theirs)
    assert [key[1] for key in graphs.replayed] == [1, 5, 6, 1, 5]  # type: ignore[index]
