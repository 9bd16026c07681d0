"""Logits to token ids, each row by its own rules. R rows, S seats, V vocabulary."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from stoop_worker.engine.tensors import PenaltyRows, SamplingRows
from stoop_worker.kernels.sampling import Limits, sample

__all__ = ["sample_tokens", "uniforms"]

_BITS = 24  # as many as a float32 can hold without rounding up to 1
_LARGEST = (1 << 64) - 1
_Words = npt.NDArray[np.uint64]
_STRIDE, _FIRST, _SECOND = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


def sample_tokens(logits_RV: Tensor, rows: SamplingRows) -> Tensor:
    """Return ids_R int64."""
    masks = rows.masks
    limits = Limits(
        suppressed_B2=rows.suppressed_R2,
        top_ks_B=rows.top_ks_R,
        masks_NW=None if masks is None else masks.masks_NW,
        mask_rows_B=None if masks is None else masks.rows_R,
    )
    if rows.penalties is not None:
        logits_RV = _penalised(logits_RV, rows.penalties)
    ids_R = sample(logits_RV, rows.temperatures_R, rows.top_ps_R, rows.uniforms_R, limits)
    if rows.penalties is not None:
        _count(ids_R, rows.penalties)
    return ids_R


def uniforms(seeds: Sequence[int], counts: Sequence[int]) -> npt.NDArray[np.float64]:
    """Return (R,) numbers in [0, 1), one for each seed and the number of tokens that were sampled with it before.

    A pure function, so a sequence samples the same tokens in any batch, and again after a preemption. The numbers are
    those of SplitMix64 (Steele, Lea and Flood, 2014), started from a mixed seed, because people choose neighbouring
    seeds.
    """
    seeds_R = np.array([seed & _LARGEST for seed in seeds], dtype=np.uint64)
    strides_R = (np.array(counts, dtype=np.uint64) + np.uint64(1)) * _STRIDE
    return (_mixed(_mixed(seeds_R) + strides_R) >> np.uint64(64 - _BITS)) / (1 << _BITS)


def _mixed(words: _Words) -> _Words:
    words = (words ^ (words >> np.uint64(30))) * _FIRST
    words = (words ^ (words >> np.uint64(27))) * _SECOND
    return words ^ (words >> np.uint64(31))


def _penalised(logits_RV: Tensor, rows: PenaltyRows) -> Tensor:
    """Lower the logits of tokens sampled before; those of a row without penalties stay the same, bit for bit."""
    precise = torch.promote_types(logits_RV.dtype, torch.float32)
    counts_RV = rows.counts_SV[rows.seats_R]
    lost_RV = rows.frequencies_R.to(precise)[:, None] * counts_RV
    lost_RV += rows.presences_R.to(precise)[:, None] * (counts_RV > 0)
    return (logits_RV.to(precise) - lost_RV).to(logits_RV.dtype)


def _count(ids_R: Tensor, rows: PenaltyRows) -> None:
    """Count the tokens of rows with penalties; the counts of other seats stay as they are."""
    penalised_R = (rows.presences_R != 0) | (rows.frequencies_R != 0)
    places_R = rows.seats_R * rows.counts_SV.shape[1] + ids_R
    rows.counts_SV.view(-1).scatter_add_(0, places_R, penalised_R.to(torch.int32))
