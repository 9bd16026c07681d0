"""Packs texts one behind another, and runs an encoder over them. T tokens, N texts."""

from collections.abc import Callable, Sequence
from itertools import accumulate

import numpy as np
import torch

from stoop_worker.engine.device.captured_texts import CapturedTexts, send_rows
from stoop_worker.engine.device.upload import Upload
from stoop_worker.engine.encoder import Encoder, Text, Values
from stoop_worker.engine.graphs import Graphs
from stoop_worker.engine.tensors import PackedTexts
from stoop_worker.kernels.backend import runs_flash

__all__ = ["TextRunner"]


class TextRunner:
    """Runs texts through an encoder, and waits for their values; small batches run as CUDA graphs after `warm_up`."""

    def __init__(self, model: Encoder, *, on_progress: Callable[[], None]) -> None:
        self._model = model
        self._on_progress = on_progress
        self._captured: CapturedTexts | None = None

    @torch.inference_mode()
    def warm_up(self) -> None:
        """Capture the usual batches, if the device can."""
        if _can_capture(self._model):
            self._captured = CapturedTexts(self._model, Graphs())

    @torch.inference_mode()
    def run(self, texts: Sequence[Text]) -> list[Values]:
        """Return the values of each text."""
        found = None if self._captured is None else self._captured.run(texts)
        if found is None:
            found = self._model.encode_texts(self._lay_out(texts))
        assert len(found.counts) == len(texts)
        ends = list(accumulate(found.counts))
        assert found.values.shape == (ends[-1],)
        return np.split(found.values.cpu().numpy(), ends[:-1])

    def _lay_out(self, texts: Sequence[Text]) -> PackedTexts:
        starts = (0, *accumulate(len(text.ids) for text in texts))
        upload = Upload(self._model.device)
        ids_T, positions_T = send_rows(texts, upload.to_device)
        packed = PackedTexts(
            ids_T=ids_T,
            positions_T=positions_T,
            starts_N1=upload.to_device(starts, torch.int32),
            starts=starts,
            longest=max(len(text.ids) for text in texts),
            kinds=tuple(text.kinds for text in texts),
            on_progress=self._on_progress,
        )
        upload.send()
        return packed


def _can_capture(model: Encoder) -> bool:
    # only this attention takes texts of any length in one launch
    return runs_flash(model.device, model.dtype)
