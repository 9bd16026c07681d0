"""Prefills of a plan laid out on the device.

B sequences, T positions packed over them, P pages, R hidden states that heads read, N entries of a list.
"""

from collections.abc import Sequence as Several
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

from worker.engine.inputs import CoordinateInput, SizeInput, TokenInput
from worker.engine.readings import Reads, draws_of
from worker.engine.sampler import Draws
from worker.engine.scheduler import Chunk
from worker.engine.skills import Head
from worker.engine.upload import ToDevice, Upload
from worker.images import Crops, Image
from worker.kernels.paged_attention import PagedLayout

__all__ = ["Batch", "Injection", "image_of", "stage"]


@dataclass(frozen=True, slots=True)
class Injection:
    """Rows of the packed positions whose embedding is written from values: (N,) coordinates or (N, 2) sizes."""

    rows_N: Tensor
    values: Tensor


@dataclass(frozen=True, slots=True)
class Batch:
    """`ids_T` is 0 where something else is fed; `images` are the first rows of image embeddings.

    `reads` is who reads heads after it, each from the packed row `rows_R`; None when nobody does.
    """

    ids_T: Tensor
    positions_T: Tensor
    slots_T: Tensor
    layout: PagedLayout
    coordinates: Injection
    sizes: Injection
    images: tuple[int, ...]
    rows_R: Tensor
    reads: Reads | None


@dataclass(frozen=True, slots=True)
class _Row:
    """One chunk and its first packed row."""

    chunk: Chunk
    first: int

    @property
    def last(self) -> int:
        return self.first + self.chunk.end - self.chunk.start - 1


def stage(chunks: Several[Chunk], *, page_size: int, bos_id: int, device: torch.device) -> Batch:
    """Lay chunks out as one packed batch on the device; what they are fed must be known."""
    firsts = [0, *accumulate(chunk.end - chunk.start for chunk in chunks)]
    rows = [_Row(chunk, first) for chunk, first in zip(chunks, firsts, strict=False)]
    reading = [row for row in rows if row.chunk.reads]
    ids, coordinates, sizes = _inputs(rows, bos_id)
    positions_T = np.concatenate([np.arange(chunk.start, chunk.end) for chunk in chunks])

    upload = Upload(device)
    to_device = upload.to_device
    batch = Batch(
        ids_T=to_device(ids, torch.int64),
        positions_T=to_device(positions_T, torch.int64),
        slots_T=to_device(np.concatenate([_slots(chunk, page_size) for chunk in chunks]), torch.int64),
        layout=_layout(rows, firsts, page_size, to_device),
        coordinates=_injection(coordinates, (), to_device),
        sizes=_injection(sizes, (2,), to_device),
        images=tuple(row.first + 1 for row in rows if row.chunk.has_image),
        rows_R=to_device([row.last for row in reading], torch.int64),
        reads=_reads(reading, to_device) if reading else None,
    )
    upload.send()
    return batch


_Entries = list[tuple[int, object]]


def _inputs(rows: Several[_Row], bos_id: int) -> tuple[list[int], _Entries, _Entries]:
    """Return the ids, and (row, values) of the coordinates and of the sizes."""
    ids: list[int] = []
    coordinates: _Entries = []
    sizes: _Entries = []
    for row in rows:
        chunk, sequence = row.chunk, row.chunk.sequence
        if chunk.has_image:
            ids += [bos_id] + [0] * (sequence.prefix_len - 1)
        for fed in sequence.inputs[max(0, chunk.start - sequence.prefix_len) : chunk.end - sequence.prefix_len]:
            match fed:
                case TokenInput(token):
                    ids.append(token)
                    continue
                case CoordinateInput(value):
                    coordinates.append((len(ids), value))
                case SizeInput(width, height):
                    sizes.append((len(ids), (width, height)))
            ids.append(0)
    return ids, coordinates, sizes


def _slots(chunk: Chunk, page_size: int) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    positions = np.arange(chunk.start, chunk.end)
    pages = np.asarray(chunk.sequence.pages, dtype=np.int64)
    return pages[positions // page_size] * page_size + positions % page_size


def _layout(rows: Several[_Row], firsts: Several[int], page_size: int, to_device: ToDevice) -> PagedLayout:
    chunks = [row.chunk for row in rows]
    used = [-(-chunk.end // page_size) for chunk in chunks]
    table_BP = np.zeros((len(chunks), max(used)), dtype=np.int32)
    for row, (chunk, count) in enumerate(zip(chunks, used, strict=True)):
        table_BP[row, :count] = chunk.sequence.pages[:count]
    context_lens = [chunk.end for chunk in chunks]
    prefix_lens = [chunk.sequence.prefix_len for chunk in chunks]
    return PagedLayout(
        cu_seqlens_B1=to_device(firsts, torch.int32),
        context_lens_B=to_device(context_lens, torch.int32),
        page_table_BP=to_device(table_BP, torch.int32),
        prefix_lens_B=to_device(prefix_lens, torch.int32),
        cu_seqlens=tuple(firsts),
        context_lens=tuple(context_lens),
        prefix_lens=tuple(prefix_lens),
        page_size=page_size,
    )


def _injection(entries: _Entries, shape: tuple[int, ...], to_device: ToDevice) -> Injection:
    # double, so that nothing is rounded before the region model's own dtype
    values = np.asarray([value for _, value in entries], dtype=np.float64).reshape(len(entries), *shape)
    return Injection(to_device([row for row, _ in entries], torch.int64), to_device(values, torch.float64))


def image_of(chunk: Chunk) -> Crops | Image:
    """Return the image of a chunk that has one."""
    image = chunk.sequence.request.image
    assert image is not None
    return image


def _reads(rows: Several[_Row], to_device: ToDevice) -> Reads:
    sequences = tuple(row.chunk.sequence for row in rows)
    numbers, suppressed = draws_of(sequences)
    temperatures_R, top_ps_R, uniforms_R = to_device(numbers, torch.float64).unbind(0)
    return Reads(
        seats_R=to_device([sequence.seat for sequence in sequences], torch.int64),
        draws=Draws(temperatures_R, top_ps_R, uniforms_R, to_device(suppressed, torch.int32)),
        regions=any(sequence.heads is not Head.TOKEN for sequence in sequences),
    )
