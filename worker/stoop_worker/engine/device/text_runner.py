"""Packs texts one behind another, without padding, and runs an encoder over them. T tokens, N texts, V values."""

from collections.abc import Callable, Sequence
from itertools import accumulate

import numpy as np
import numpy.typing as npt
import torch

from stoop_worker.engine.device.upload import Upload
from stoop_worker.engine.encoder import Encoder, Ids
from stoop_worker.engine.tensors import PackedTexts

__all__ = ["TextRunner"]


class TextRunner:
    """Runs texts through an encoder, and waits for their values."""

    def __init__(self, model: Encoder, *, on_progress: Callable[[], None]) -> None:
        self._model = model
        self._on_progress = on_progress

    @torch.inference_mode()
    def run(self, texts: Sequence[Ids]) -> npt.NDArray[np.float32]:
        """Return the values of each text, (N, V)."""
        values_NV = self._model.encode_texts(self._lay_out(texts))
        assert values_NV.shape == (len(texts), self._model.spec.width)
        found: npt.NDArray[np.float32] = values_NV.float().cpu().numpy()
        return found

    def _lay_out(self, texts: Sequence[Ids]) -> PackedTexts:
        starts = (0, *accumulate(map(len, texts)))
        upload = Upload(self._model.device)
        packed = PackedTexts(
            ids_T=upload.to_device(np.concatenate([np.array(ids) for ids in texts]), torch.int64),
            positions_T=upload.to_device(np.concatenate([np.arange(len(ids)) for ids in texts]), torch.int64),
            firsts_N=upload.to_device(starts[:-1], torch.int64),
            starts=starts,
            on_progress=self._on_progress,
        )
        upload.send()
        return packed
