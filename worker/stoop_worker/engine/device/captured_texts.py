"""Small batches of texts as CUDA graphs, padded to the next larger one: launches would take longer than the work.

T tokens, N texts, V values of a text.
"""

from collections.abc import Sequence
from itertools import accumulate, chain
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from stoop_worker.engine.device.upload import ToDevice, Upload
from stoop_worker.engine.encoder import Encoder, Text
from stoop_worker.engine.graphs import Graphs
from stoop_worker.engine.request import VectorKind
from stoop_worker.engine.tensors import PackedTexts, TextValues

__all__ = ["CapturedTexts", "TextShape", "send_rows", "shapes"]

_MOST_TOKENS = 8192  # larger batches keep a GPU busy for longer than their launches take
_MOST_TEXTS, _LONGEST = 128, 512
_DENSE = (VectorKind.DENSE,)


class TextShape(NamedTuple):
    """The size of a captured batch: tokens, texts, and the tokens of the longest text."""

    tokens: int
    texts: int
    longest: int


def shapes(longest: int) -> list[TextShape]:
    """Return the shapes to capture, smallest first, for a model whose texts have up to `longest` tokens."""
    sizes = [32 << power for power in range((_MOST_TOKENS // 32).bit_length())]
    return [TextShape(size, min(_MOST_TEXTS, max(4, size // 8)), min(size, _LONGEST, longest)) for size in sizes]


def send_rows(texts: Sequence[Text], to_device: ToDevice) -> tuple[Tensor, Tensor]:
    """Return ids_T and positions_T of texts one after another, both int64, on the device."""
    lengths = np.array([len(text.ids) for text in texts])
    ends = lengths.cumsum()
    ids = np.fromiter(chain.from_iterable(text.ids for text in texts), np.int64, ends[-1])
    positions = np.arange(ends[-1]) - np.repeat(ends - lengths, lengths)
    return to_device(ids, torch.int64), to_device(positions, torch.int64)


class CapturedTexts:
    """Runs texts at fixed addresses on the device. All texts of a captured batch want one dense vector or score."""

    def __init__(self, model: Encoder, graphs: Graphs) -> None:
        self._model = model
        self._graphs = graphs
        self._shapes = shapes(model.spec.max_context)
        largest, device = self._shapes[-1], model.device
        self._ids_T = torch.zeros(largest.tokens, dtype=torch.int64, device=device)
        self._positions_T = torch.zeros(largest.tokens, dtype=torch.int64, device=device)
        self._starts_N1 = torch.zeros(_MOST_TEXTS + 1, dtype=torch.int32, device=device)
        for shape in reversed(self._shapes):
            self._starts_N1[1:] = shape.longest
            graphs.capture(shape, lambda shape=shape: model.encode_texts(self._packed(shape)).values)  # type: ignore[misc]

    def run(self, texts: Sequence[Text]) -> TextValues | None:
        """Return the values of each text; None if no captured batch has room for them."""
        shape = self._shape_for(texts)
        if shape is None:
            return None
        self._fill(shape, texts)
        values = self._graphs.replay(shape)
        width = len(values) // shape.texts
        return TextValues(values[: len(texts) * width], (width,) * len(texts))

    def _shape_for(self, texts: Sequence[Text]) -> TextShape | None:
        if any(text.kinds != _DENSE for text in texts):
            return None
        tokens, longest = sum(len(text.ids) for text in texts), max(len(text.ids) for text in texts)
        fitting = (each for each in self._shapes if tokens <= each.tokens and len(texts) <= each.texts)
        return next((each for each in fitting if longest <= each.longest), None)

    def _fill(self, shape: TextShape, texts: Sequence[Text]) -> None:
        starts = np.full(shape.texts + 1, sum(len(text.ids) for text in texts))
        starts[: len(texts)] = (0, *accumulate(len(text.ids) for text in texts[:-1]))
        upload = Upload(self._model.device)
        sent = (*send_rows(texts, upload.to_device), upload.to_device(starts, torch.int32))
        upload.send()
        for target, values in zip((self._ids_T, self._positions_T, self._starts_N1), sent, strict=True):
            target[: len(values)] = values

    def _packed(self, shape: TextShape) -> PackedTexts:
        return PackedTexts(
            ids_T=self._ids_T[: shape.tokens],
            positions_T=self._positions_T[: shape.tokens],
            starts_N1=self._starts_N1[: shape.texts + 1],
            starts=None,
            longest=shape.longest,
            kinds=(_DENSE,) * shape.texts,
            on_progress=lambda: None,
        )
