"""The tensors that pass between the engine and a model.

T positions packed over sequences, R rows whose heads are read, B rows of a decode, N rows whose embeddings are given,
S seats, W columns of fed values, V columns of head values, C model dim; of masks, N and W words of 32 ids.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from stoop_worker.engine.task import VectorKind
from stoop_worker.kernels.paged_attention import PagedLayout

__all__ = [
    "PENDING",
    "DType",
    "Device",
    "FedRows",
    "Given",
    "HeadReads",
    "KVView",
    "LastHeads",
    "MaskRows",
    "PackedTexts",
    "PenaltyRows",
    "SamplingRows",
    "Tensor",
    "TextValues",
]

Device = torch.device
DType = torch.dtype

PENDING = -1
"""The id of a row whose input is still in its seat."""


@dataclass(frozen=True, slots=True)
class KVView:
    """The KV cache as a batch sees it: `pool` is (layers, 2, pages, page size, key heads, head dim).

    `positions_T` are the family's: (T,), or (T, axes). `slots_T` receive the keys and values. The model calls
    `on_progress` before each layer.
    """

    positions_T: Tensor
    slots_T: Tensor
    layout: PagedLayout
    pool: Tensor
    on_progress: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Given:
    """Embeddings of media and of values, for the rows `rows_N` of a batch of `count` positions.

    A captured batch has one more row than `count`, which takes the padding of `rows_N`.
    """

    rows_N: Tensor
    embeddings_NC: Tensor
    count: int

    def place(self, x_TC: Tensor) -> Tensor:
        """Write the embeddings to their rows of `x_TC`, and return its first `count` rows."""
        return x_TC.index_copy_(0, self.rows_N, self.embeddings_NC)[: self.count]


@dataclass(frozen=True, slots=True)
class LastHeads:
    """The last head values of each running sequence, by its seat: ids int64, values float32."""

    tokens_S: Tensor
    values_SV: Tensor

    @classmethod
    def of(cls, seats: int, values: int, device: torch.device) -> "LastHeads":
        """Make `seats` seats with `values` values each."""
        return cls(
            torch.zeros(seats, dtype=torch.int64, device=device),
            torch.zeros(seats, values, dtype=torch.float32, device=device),
        )


@dataclass(frozen=True, slots=True)
class FedRows:
    """One input per row: token `ids_B`, or the content of seat `seats_B` if the id is `PENDING`.

    Without `seats_B` no row is pending. Without `kinds_B` all inputs are tokens; otherwise they are of these kinds, and
    the numbers of inputs other than tokens are in `values_BW` (float64).
    """

    ids_B: Tensor
    seats_B: Tensor | None = None
    kinds_B: Tensor | None = None
    values_BW: Tensor | None = None


@dataclass(frozen=True, slots=True)
class PenaltyRows:
    """The losses of R rows' tokens: `presences_R` for each token sampled before, and `frequencies_R` for each time.

    Both are float64. `counts_SV` (int32) counts how often each seat's sequence has sampled each of V tokens.
    """

    counts_SV: Tensor
    seats_R: Tensor
    presences_R: Tensor
    frequencies_R: Tensor


@dataclass(frozen=True, slots=True)
class MaskRows:
    """The ids that rows may choose: `masks_NW`, as in `kernels.sampling.Limits`, and each row's, or -1 for all ids."""

    masks_NW: Tensor
    rows_R: Tensor


@dataclass(frozen=True, slots=True)
class SamplingRows:
    """Parameters for sampling R tokens: (R,) float64 each, and the forbidden ids `suppressed_R2`, int32; -1 is none.

    `top_ks_R` (int32) limits each row to its k likeliest ids; 0 allows all. It, `masks` and `penalties` are None if no
    row has such a limit.
    """

    temperatures_R: Tensor
    top_ps_R: Tensor
    uniforms_R: Tensor
    suppressed_R2: Tensor
    top_ks_R: Tensor | None = None
    masks: MaskRows | None = None
    penalties: PenaltyRows | None = None


@dataclass(frozen=True, slots=True)
class HeadReads:
    """Instructions for reading heads: target seats, sampling, and whether any row reads values besides the token.

    `rules_RK` (int64) has the `rule` of each row's skill; it has no columns if the spec asks for none.
    """

    seats_R: Tensor
    sampling: SamplingRows
    values: bool
    rules_RK: Tensor

    def keep(self, ids_R: Tensor, values_RV: Tensor | None, last: LastHeads) -> Tensor:
        """Store ids and values (`values_RV` float32) in the seats; return both as (R, 1 + V) float64.

        A float64 holds every id and every float32 exactly. Ids alone are returned as they are, (R, 1) int64.
        """
        last.tokens_S[self.seats_R] = ids_R
        if values_RV is None:
            return ids_R[:, None]
        last.values_SV[self.seats_R] = values_RV
        return torch.cat((ids_R.double()[:, None], values_RV.double()), dim=1)


@dataclass(frozen=True, slots=True)
class PackedTexts:
    """N texts, packed one after another: text n has the rows from `starts[n]` to `starts[n + 1]`.

    `ids_T` and `positions_T` are int64; each text's positions count from 0. `starts_N1` (int32) are the same starts on
    the device. In captured work only these are known, and `starts` is None: then some texts may be empty, nothing reads
    their values, and rows after the last text hold arbitrary values. No text is longer than `longest`. `kinds` are the
    kinds of vectors that each text wants. The model calls `on_progress` before each layer.
    """

    ids_T: Tensor
    positions_T: Tensor
    starts_N1: Tensor
    starts: tuple[int, ...] | None
    longest: int
    kinds: tuple[tuple[VectorKind, ...], ...]
    on_progress: Callable[[], None]

    @property
    def firsts_N(self) -> Tensor:
        """The rows where texts start, including empty texts."""
        return self.starts_N1[:-1].clamp(max=len(self.ids_T) - 1)

    @property
    def bounds(self) -> tuple[int, ...]:
        """The starts on the host; captured work on a CUDA device must not read them."""
        return tuple(self.starts_N1.tolist()) if self.starts is None else self.starts


@dataclass(frozen=True, slots=True)
class TextValues:
    """The values of texts, one text after another in one row of float32, and how many each text has."""

    values: Tensor
    counts: tuple[int, ...]

    @classmethod
    def of_rows(cls, values_NV: Tensor) -> "TextValues":
        """Return one row of values for each text."""
        return cls(values_NV.float().flatten(), (values_NV.shape[1],) * len(values_NV))
