"""Prefills of a plan laid out on the device, in newly allocated tensors.

B sequences, T positions packed over them, P pages, R hidden states that heads read, N rows whose embeddings are given,
W columns of values.
"""

from collections.abc import Sequence as Several
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from stoop_worker.engine.device.heads import rules_of, sampling_of, suppressed_of
from stoop_worker.engine.device.penalties import TokenCounts
from stoop_worker.engine.device.upload import ToDevice, Upload
from stoop_worker.engine.device.varlen import Varlen
from stoop_worker.engine.grammars.masks import Masks
from stoop_worker.engine.inputs import ValuesInput
from stoop_worker.engine.sequence import Sequence
from stoop_worker.engine.skill import Head
from stoop_worker.engine.tensors import FedRows, HeadReads, MaskRows, SamplingRows
from stoop_worker.kernels.paged_attention import PagedLayout

__all__ = ["Batch", "RowLimits", "send_values", "stage"]


@dataclass(frozen=True, slots=True)
class Batch:
    """The tensors of one prefill. `fed` has id 0 for inputs other than tokens; their embeddings are given for `rows_N`.

    `reads` are the instructions for reading heads afterwards, each from the packed row `rows_R`; None if none is read.
    """

    fed: FedRows
    positions_T: Tensor
    slots_T: Tensor
    layout: PagedLayout
    rows_N: Tensor
    rows_R: Tensor
    reads: HeadReads | None


@dataclass(frozen=True, slots=True)
class RowLimits:
    """The limits on sampling that few sequences have: the masks of grammars, and the counts for penalties."""

    masks: Masks
    counts: TokenCounts
    vocabulary: int


def stage(varlen: Varlen, limits: RowLimits, *, page_size: int, rule: int, device: torch.device) -> Batch:
    """Send laid-out chunks to the device; `rule` is the width of the skills' rules."""
    upload = Upload(device)
    to_device = upload.to_device
    batch = Batch(
        fed=FedRows(
            to_device(varlen.ids_T, torch.int64),
            to_device(varlen.seats_T, torch.int64) if varlen.has_pending else None,
        ),
        positions_T=to_device(varlen.positions_T, torch.int64),
        slots_T=to_device(varlen.slots_T, torch.int64),
        layout=_layout(varlen, page_size, to_device),
        rows_N=to_device(varlen.given_rows, torch.int64),
        rows_R=to_device(varlen.lasts, torch.int64),
        reads=_reads(varlen, limits, rule, to_device) if varlen.readers else None,
    )
    upload.send()
    return batch


def send_values(values: Several[ValuesInput], columns: int, device: torch.device) -> FedRows:
    """Send values to the device for the family to embed, in rows of `columns` columns."""
    # float64, so that values are rounded only once, to the model's dtype
    numbers = np.zeros((len(values), columns))
    for row, fed in enumerate(values):
        numbers[row, : len(fed.values)] = fed.values
    upload = Upload(device)
    rows = FedRows(
        ids_B=upload.to_device(np.zeros(len(values)), torch.int64),
        kinds_B=upload.to_device([fed.kind for fed in values], torch.int64),
        values_BW=upload.to_device(numbers, torch.float64),
    )
    upload.send()
    return rows


def _layout(varlen: Varlen, page_size: int, to_device: ToDevice) -> PagedLayout:
    chunks = varlen.chunks
    context_lens = [chunk.end for chunk in chunks]
    prefix_lens = [chunk.sequence.two_way for chunk in chunks]
    return PagedLayout(
        cu_seqlens_B1=to_device(varlen.starts, torch.int32),
        context_lens_B=to_device(context_lens, torch.int32),
        page_table_BP=to_device(varlen.table_BP, torch.int32),
        prefix_lens_B=to_device(prefix_lens, torch.int32),
        cu_seqlens=varlen.starts,
        context_lens=tuple(context_lens),
        prefix_lens=tuple(prefix_lens),
        page_size=page_size,
    )


def _reads(varlen: Varlen, limits: RowLimits, rule: int, to_device: ToDevice) -> HeadReads:
    sequences = varlen.readers
    sampling = sampling_of(sequences)
    temperatures_R, top_ps_R, uniforms_R, presences_R, frequencies_R = to_device(
        sampling.numbers, torch.float64
    ).unbind(0)
    seats_R = to_device([sequence.seat for sequence in sequences], torch.int64)
    penalised = limits.counts.renew(sequences, prefilled=True)
    return HeadReads(
        seats_R=seats_R,
        sampling=SamplingRows(
            temperatures_R,
            top_ps_R,
            uniforms_R,
            to_device(suppressed_of(sequences), torch.int32),
            to_device(sampling.top_ks, torch.int32) if sampling.top_ks.any() else None,
            _masks(sequences, limits, to_device),
            limits.counts.rows(seats_R, presences_R, frequencies_R) if penalised else None,
        ),
        values=any(sequence.heads is not Head.TOKEN for sequence in sequences),
        rules_RK=to_device(rules_of(sequences, rule), torch.int64),
    )


def _masks(sequences: Several[Sequence], limits: RowLimits, to_device: ToDevice) -> MaskRows | None:
    constrained = [row for row, sequence in enumerate(sequences) if sequence.skill.constraint]
    if not constrained:
        return None
    masks_NW = np.zeros((len(constrained), -(-limits.vocabulary // 32)), dtype=np.int32)
    limits.masks.fill([each for sequence in sequences if (each := sequence.skill.constraint)], masks_NW)
    rows = np.full(len(sequences), -1, dtype=np.int32)
    rows[constrained] = np.arange(len(constrained))
    return MaskRows(to_device(masks_NW, torch.int32), to_device(rows, torch.int32))
