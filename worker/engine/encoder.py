"""Images to embeddings.

B images, N crops, P patches of a crop and embeddings of an image, D feature dim, C text model dim.
"""

from collections.abc import Callable
from collections.abc import Sequence as Several

import torch
from torch import Tensor
from torch.profiler import record_function

from worker.engine.graphs import Graphs
from worker.images import Crops, Image
from worker.model import vision
from worker.model.moondream import Moondream
from worker.model.weights import VisionWeights

__all__ = ["Encoder"]


class Encoder:
    """Encodes the images of a step together; once warmed up, by a captured graph for so many crops as are usual.

    Usual are those of one image, and up to `usual_crops`.
    """

    def __init__(
        self,
        model: Moondream,
        weights: VisionWeights,
        graphs: Graphs | None,
        *,
        usual_crops: int,
        mark: Callable[[], None],
    ) -> None:
        config = model.config.vision
        self._model = model
        self._weights = weights
        self._graphs = graphs
        self._mark = mark
        if graphs is not None:
            shape = (max(1 + config.max_crops, usual_crops), config.crop_size, config.crop_size, config.in_channels)
            self._pixels_NHWC = torch.zeros(shape, dtype=torch.uint8, device=model.device)
            # all graphs leave their features here: outputs of their own would be as large as all sizes together
            self._features_NPD = torch.zeros(
                shape[0], config.patches, config.enc_dim, dtype=model.dtype, device=model.device
            )

    def warm_up(self) -> None:
        """Capture the encoder for every usual number of crops."""
        if self._graphs is not None:
            for crops in range(len(self._pixels_NHWC), 0, -1):
                self._graphs.capture(("vision", crops), lambda crops=crops: self._captured(crops))  # type: ignore[misc]

    def encode(self, images: Several[Crops | Image]) -> Tensor | None:
        """Return embeddings_BPC of the images; None if there are none."""
        if not images:
            return None
        config, device = self._model.config.vision, self._model.device
        crops = sum(vision.crops_to_encode(image, config) for image in images)
        graphs = self._graphs if self._graphs is not None and ("vision", crops) in self._graphs else None
        with record_function("stoop.image"):
            places_NHWC = None if graphs is None else self._pixels_NHWC[:crops]
            pixels_NHWC = vision.crops_on_device(images, config, device, places_NHWC)
        with record_function("stoop.vision"):
            features_NPD = self._features(pixels_NHWC) if graphs is None else graphs.replay(("vision", crops))
            return vision.embeddings(features_NPD, images, self._weights, config)

    def _captured(self, crops: int) -> Tensor:
        features_NPD = self._features_NPD[:crops]
        return features_NPD.copy_(self._features(self._pixels_NHWC[:crops]))

    def _features(self, pixels_NHWC: Tensor) -> Tensor:
        model = self._model
        return vision.features(
            pixels_NHWC, self._weights, model.config.vision, dtype=model.dtype, after_block=self._mark
        )
