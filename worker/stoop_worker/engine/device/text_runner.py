"""Packs texts one after another, and runs an encoder over them. T tokens, N texts."""

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise

import torch

from stoop_worker.engine.device.captured_texts import CapturedTexts, send_rows
from stoop_worker.engine.device.upload import Upload
from stoop_worker.engine.encoder import Encoder, Text, Values
from stoop_worker.engine.graphs import Graphs
from stoop_worker.engine.tensors import PackedTexts, TextValues
from stoop_worker.kernels.backend import runs_flash

__all__ = ["StartedTexts", "TextRunner"]


class StartedTexts:
    """Texts that a device is reading. Their values are copied to the host after the work, while later work starts."""

    def __init__(self, found: TextValues) -> None:
        self._counts = found.counts
        self._copied: torch.cuda.Event | None = None
        self._values = found.values
        if found.values.is_cuda:
            self._values = torch.empty(found.values.shape, dtype=found.values.dtype, pin_memory=True)
            self._values.copy_(found.values, non_blocking=True)
            self._copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._copied.record()

    def values(self) -> list[Values]:
        """Wait for the device, and return the values of each text."""
        if self._copied is not None:
            self._copied.synchronize()
        values, ends = self._values.numpy(), list(accumulate(self._counts, initial=0))
        assert values.shape == (ends[-1],)
        return [values[start:end] for start, end in pairwise(ends)]


class TextRunner:
    """Runs texts through an encoder; small batches run as CUDA graphs after `warm_up`."""

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
    def start(self, texts: Sequence[Text]) -> StartedTexts:
        """Start work on texts; on a GPU it runs after all work started earlier, and this call does not wait for it."""
        found = None if self._captured is None else self._captured.run(texts)
        if found is None:
            found = self._model.encode_texts(self._lay_out(texts))
        assert len(found.counts) == len(texts)
        return StartedTexts(found)

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
    # only there does attention take texts of any length in one launch
    return runs_flash(model.device, model.dtype)
