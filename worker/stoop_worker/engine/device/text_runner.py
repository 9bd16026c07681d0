"""Packs texts one behind another, without padding, and runs an encoder over them. T tokens, N texts."""

from collections.abc import Callable, Sequence
from itertools import accumulate

import numpy as np
import torch

from stoop_worker.engine.device.upload import Upload
from stoop_worker.engine.encoder import Encoder, Text, Values
from stoop_worker.engine.tensors import PackedTexts

__all__ = ["TextRunner"]


class TextRunner:
    """Runs texts through an encoder, and waits for their values."""

    def __init__(self, model: Encoder, *, on_progress: Callable[[], None]) -> None:
        self._model = model
        self._on_progress = on_progress

    @torch.inference_mode()
    def run(self, texts: Sequence[Text]) -> list[Values]:
        """Return the values of each text."""
        found = self._model.encode_texts(self._lay_out(texts))
        assert len(found.counts) == len(texts)
        ends = list(accumulate(found.counts))
        assert found.values.shape == (ends[-1],)
        return np.split(found.values.cpu().numpy(), ends[:-1])

    def _lay_out(self, texts: Sequence[Text]) -> PackedTexts:
        starts = (0, *accumulate(len(text.ids) for text in texts))
        upload = Upload(self._model.device)
        packed = PackedTexts(
            ids_T=upload.to_device(np.concatenate([np.array(text.ids) for text in texts]), torch.int64),
            positions_T=upload.to_device(np.concatenate([np.arange(len(text.ids)) for text in texts]), torch.int64),
            firsts_N=upload.to_device(starts[:-1], torch.int64),
            starts=starts,
            kinds=tuple(text.kinds for text in texts),
            on_progress=self._on_progress,
        )
        upload.send()
        return packed
