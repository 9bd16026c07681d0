"""Prefills of a plan laid out on the device.

B sequences, T positions packed over them, P pages, R hidden states that heads read, N entries of a list.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from worker.engine.packing import Entries, Packed, write_pages
from worker.engine.readings import Reads, draws_of
from worker.engine.sampler import Draws
from worker.engine.skills import Head
from worker.engine.upload import ToDevice, Upload
from worker.kernels.paged_attention import PagedLayout

__all__ = ["Batch", "Injection", "injection", "stage"]


@dataclass(frozen=True, slots=True)
class Injection:
    """Rows of the packed positions whose embedding is written from values: (N,) coordinates or (N, 2) sizes."""

    rows_N: Tensor
    values: Tensor


@dataclass(frozen=True, slots=True)
class Batch:
    """`ids_T` is 0 where something else is fed.

    `reads` is who reads heads after it, each from the packed row `rows_R`; None when nobody does.
    """

    ids_T: Tensor
    positions_T: Tensor
    slots_T: Tensor
    layout: PagedLayout
    coordinates: Injection
    sizes: Injection
    rows_R: Tensor
    reads: Reads | None


def stage(packed: Packed, *, page_size: int, device: torch.device) -> Batch:
    """Send packed chunks to the device."""
    upload = Upload(device)
    to_device = upload.to_device
    batch = Batch(
        ids_T=to_device(packed.ids_T, torch.int64),
        positions_T=to_device(packed.positions_T, torch.int64),
        slots_T=to_device(packed.slots_T, torch.int64),
        layout=_layout(packed, page_size, to_device),
        coordinates=injection(packed.coordinates, (), to_device),
        sizes=injection(packed.sizes, (2,), to_device),
        rows_R=to_device(packed.lasts, torch.int64),
        reads=_reads(packed, to_device) if packed.readers else None,
    )
    upload.send()
    return batch


def injection(entries: Entries, shape: tuple[int, ...], to_device: ToDevice) -> Injection:
    """Return the entries of one kind, whose values have this shape."""
    # double, so that nothing is rounded before the region model's own dtype
    values = np.asarray([value for _, value in entries], dtype=np.float64).reshape(len(entries), *shape)
    return Injection(to_device([row for row, _ in entries], torch.int64), to_device(values, torch.float64))


def _layout(packed: Packed, page_size: int, to_device: ToDevice) -> PagedLayout:
    chunks = packed.chunks
    table_BP = np.zeros((len(chunks), max(-(-chunk.end // page_size) for chunk in chunks)), dtype=np.int32)
    write_pages(chunks, page_size, table_BP)
    context_lens = [chunk.end for chunk in chunks]
    prefix_lens = [chunk.sequence.prefix_len for chunk in chunks]
    return PagedLayout(
        cu_seqlens_B1=to_device(packed.starts, torch.int32),
        context_lens_B=to_device(context_lens, torch.int32),
        page_table_BP=to_device(table_BP, torch.int32),
        prefix_lens_B=to_device(prefix_lens, torch.int32),
        cu_seqlens=packed.starts,
        context_lens=tuple(context_lens),
        prefix_lens=tuple(prefix_lens),
        page_size=page_size,
    )


def _reads(packed: Packed, to_device: ToDevice) -> Reads:
    sequences = packed.readers
    numbers, suppressed = draws_of(sequences)
    temperatures_R, top_ps_R, uniforms_R = to_device(numbers, torch.float64).unbind(0)
    return Reads(
        seats_R=to_device([sequence.seat for sequence in sequences], torch.int64),
        draws=Draws(temperatures_R, top_ps_R, uniforms_R, to_device(suppressed, torch.int32)),
        regions=any(sequence.heads is not Head.TOKEN for sequence in sequences),
    )
