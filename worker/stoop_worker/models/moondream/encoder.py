"""Images to embeddings.

B images, N crops, P patches of a crop and embeddings of an image, D feature dim, C text model dim.
"""

from collections.abc import Callable
from collections.abc import Sequence as Several

import torch
from torch import Tensor

from stoop_worker.engine.graphs import Graphs
from stoop_worker.images import Picture
from stoop_worker.kernels.profiling import named_part
from stoop_worker.models.moondream import vision
from stoop_worker.models.moondream.config_parts import VisionConfig
from stoop_worker.models.moondream.weights import VisionWeights

__all__ = ["Encoder"]


class Encoder:
    """Encodes the images of a step together, with a graph for the numbers of crops that were captured."""

    def __init__(
        self, weights: VisionWeights, config: VisionConfig, *, device: torch.device, dtype: torch.dtype
    ) -> None:
        self._weights = vision.aligned(weights)
        self._config = config
        self._device = device
        self._dtype = dtype
        self._graphs: Graphs | None = None

    def capture(self, graphs: Graphs, usual_crops: int) -> None:
        """Capture the encoder for the numbers of crops of one image, and for larger ones up to `usual_crops`."""
        config = self._config
        most = max(1 + config.max_crops, usual_crops)
        shape = (most, config.crop_size, config.crop_size, config.in_channels)
        self._pixels_NHWC = torch.zeros(shape, dtype=torch.uint8, device=self._device)
        # all graphs leave their features here: outputs of their own would be as large as all sizes together
        self._features_NPD = torch.zeros(most, config.patches, config.enc_dim, dtype=self._dtype, device=self._device)
        for crops in range(most, 0, -1):
            graphs.capture(("vision", crops), lambda crops=crops: self._captured(crops))  # type: ignore[misc]
        self._graphs = graphs

    def encode(self, images: Several[Picture], on_progress: Callable[[], None]) -> Tensor:
        """Return embeddings_BPC of one image or more; `on_progress` is called after each block that is not captured."""
        config = self._config
        crops = sum(vision.crops_to_encode(image, config) for image in images)
        graphs = self._graphs if self._graphs is not None and ("vision", crops) in self._graphs else None
        with named_part("stoop.image"):
            places_NHWC = None if graphs is None else self._pixels_NHWC[:crops]
            pixels_NHWC = vision.crops_on_device(images, config, self._device, places_NHWC)
        with named_part("stoop.vision"):
            features_NPD = (
                self._features(pixels_NHWC, on_progress) if graphs is None else graphs.replay(("vision", crops))
            )
            return vision.embeddings(features_NPD, images, self._weights, config)

    def _captured(self, crops: int) -> Tensor:
        return self._features(self._pixels_NHWC[:crops], None, self._features_NPD[:crops])

    def _features(
        self, pixels_NHWC: Tensor, on_progress: Callable[[], None] | None, into_NPD: Tensor | None = None
    ) -> Tensor:
        return vision.features(
            pixels_NHWC, self._weights, self._config, dtype=self._dtype, after_block=on_progress, into_NPD=into_NPD
        )
