"""Batches through the model: encode, prefill, decode, and the heads.

T packed positions, C model dim, H heads, D head dim, R rows that read a head.
"""

from collections.abc import Callable, Iterable
from collections.abc import Sequence as Several
from dataclasses import dataclass

import torch
from torch import Tensor

from worker.engine.batch import Batch
from worker.engine.sampler import draw
from worker.engine.sequence import Sequence
from worker.engine.skills import Head, Reading
from worker.engine.upload import Upload
from worker.kernels.paged_attention import PagedLayout, paged_attention, write_kv
from worker.model import region, text, vision
from worker.model.moondream import Moondream

__all__ = ["HeadValues", "Runner", "collect"]


@dataclass(frozen=True, slots=True)
class HeadValues:
    """What one head says, still on the device: (R,) ids or coordinates, (R, 2) sizes, in the order of `sequences`."""

    head: Head
    sequences: tuple[Sequence, ...]
    values: Tensor


@dataclass(frozen=True, slots=True)
class _PagedAttend:
    """Attention of a batch over the KV pool (layers, 2, pages, page size, H, D); a mark for each layer."""

    pool: Tensor
    slots_T: Tensor
    layout: PagedLayout
    mark: Callable[[], None]

    def __call__(self, layer: int, q_THD: Tensor, k_THD: Tensor, v_THD: Tensor) -> Tensor:
        self.mark()
        write_kv(k_THD, v_THD, self.pool[layer], self.slots_T)
        return paged_attention(q_THD, self.pool[layer], self.layout)


class Runner:
    """Owns the KV pool; gives device tensors back and waits for nothing.

    `mark` is called between the parts of its work, the longest of which is one layer of the model.
    """

    def __init__(self, model: Moondream, *, pages: int, page_size: int, mark: Callable[[], None]) -> None:
        config = model.config.text
        self._model = model
        self._mark = mark
        shape = (config.n_layers, 2, pages, page_size, config.n_heads, config.head_dim)
        self._pool = torch.zeros(shape, dtype=model.dtype, device=model.device)

    @torch.inference_mode()
    def copy_pages(self, copies: Several[tuple[int, int]]) -> None:
        """Copy whole pages, (from, to), in all layers at once."""
        upload = Upload(self._pool.device)
        sources, targets = upload.to_device(copies, torch.int64).unbind(1)
        upload.send()
        self._pool[:, :, targets] = self._pool[:, :, sources]

    @torch.inference_mode()
    def prefill(self, batch: Batch) -> list[HeadValues]:
        """Compute several positions a sequence, encoding the images that are among them."""
        x_TC = self._embed(batch)
        for (first, _), embeddings_PC in zip(batch.images, self._encode(batch), strict=True):
            x_TC[first : first + embeddings_PC.shape[0]] = embeddings_PC
        return self._read(batch, self._forward(batch, x_TC))

    @torch.inference_mode()
    def decode(self, batch: Batch) -> list[HeadValues]:
        """Compute one position a sequence."""
        return self._read(batch, self._forward(batch, self._embed(batch)))

    def _encode(self, batch: Batch) -> list[Tensor]:
        if not batch.images:
            return []
        model = self._model
        return vision.encode(
            [crops for _, crops in batch.images],
            model.weights.vision,
            model.config.vision,
            device=model.device,
            dtype=model.dtype,
            after_block=self._mark,
        )

    def _embed(self, batch: Batch) -> Tensor:
        weights = self._model.weights
        x_TC = text.embed(batch.ids_T, weights.text)
        for injection, write in (
            (batch.coordinates, region.write_coordinate),
            (batch.sizes, region.write_size),
        ):
            if injection.rows_N.numel():
                x_TC[injection.rows_N] = write(injection.values, weights.region)
        return x_TC

    def _forward(self, batch: Batch, x_TC: Tensor) -> Tensor:
        attend = _PagedAttend(self._pool, batch.slots_T, batch.layout, self._mark)
        return text.forward(x_TC, batch.positions_T, self._model.weights.text, self._model.config.text, attend)

    def _read(self, batch: Batch, hidden_TC: Tensor) -> list[HeadValues]:
        return [
            HeadValues(head, readers.sequences, self._values(head, hidden_TC[readers.rows_R], batch))
            for head, readers in batch.readers.items()
            if readers.sequences
        ]

    def _values(self, head: Head, hidden_RC: Tensor, batch: Batch) -> Tensor:
        weights = self._model.weights
        if head is Head.TOKEN:
            return draw(text.logits(hidden_RC, weights.text), batch.draws)
        if head is Head.COORDINATE:
            return region.read_coordinate(region.coordinate_logits(hidden_RC, weights.region))
        return region.read_size(region.size_logits(hidden_RC, weights.region))


def collect(results: Iterable[HeadValues]) -> dict[Sequence, Reading]:
    """Bring head values to the host, which waits for the device once, and put them together by sequence."""
    results = list(results)
    if not results:
        return {}
    # doubles hold every id and every float32
    flat = torch.cat([result.values.double().flatten() for result in results]).tolist()
    found: dict[Sequence, dict[Head, list[float]]] = {}
    for result in results:
        width = result.values.numel() // len(result.sequences)
        for sequence in result.sequences:
            found.setdefault(sequence, {})[result.head] = flat[:width]
            del flat[:width]
    return {sequence: _reading(values) for sequence, values in found.items()}


def _reading(values: dict[Head, list[float]]) -> Reading:
    token, coordinate, size = (values.get(head) for head in (Head.TOKEN, Head.COORDINATE, Head.SIZE))
    return Reading(
        token=int(token[0]) if token else None,
        coordinate=coordinate[0] if coordinate else None,
        size=(size[0], size[1]) if size else None,
    )
