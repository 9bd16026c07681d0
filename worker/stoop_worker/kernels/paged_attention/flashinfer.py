"""Attention by the library FlashInfer, in `bfloat16` or `float16`, for heads of 64 or 128 channels.

FlashInfer plans a batch on the host, and its launches then follow the plan. So a captured launch may be replayed after
each plan of its own. It reads a layer's pool in place: its layout "NHD" is (pages, page size, K, D), once for keys and
once for values. The first plan of each kind compiles kernels with nvcc, which takes up to minutes; FlashInfer keeps
them in a folder (`FLASHINFER_WORKSPACE_BASE`). All plans of one `FlashInfer` share memory, so each batch must run
before the next one is planned.

B sequences, T query rows, N pages of all sequences, K key heads, D head dim.
"""

from dataclasses import dataclass
from importlib import import_module
from math import isclose
from typing import Any

import torch
from torch import Tensor

__all__ = ["FLASHINFER_HEAD_DIMS", "FlashInfer", "HeadSizes", "PageLists", "PlannedDecode", "PlannedPrefill"]

FLASHINFER_HEAD_DIMS = (64, 128)

_FLOAT_BYTES = 256 << 20  # parts of outputs of prefills and small decodes, where the positions of sequences are split
_PLAN_BYTES = 8 << 20  # as FlashInfer's own constructors take


@dataclass(frozen=True, slots=True)
class HeadSizes:
    """Query heads, key heads, channels of a head, positions of a page, and the dtype of queries and of the pool."""

    heads: int
    key_heads: int
    head_dim: int
    page_size: int
    dtype: torch.dtype


@dataclass(frozen=True, slots=True)
class PageLists:
    """The pages of B sequences, one list after another; int32.

    Sequence b has `pages_N` from `starts_B1[b]` to `starts_B1[b + 1]`, and `lasts_B[b]` positions in its last page.
    """

    starts_B1: Tensor
    pages_N: Tensor
    lasts_B: Tensor


class FlashInfer:
    """FlashInfer for the layers of one model, and decodes of up to `rows` rows.

    `library` is the package, which is imported by default.
    """

    def __init__(self, sizes: HeadSizes, device: torch.device, *, rows: int, library: Any = None) -> None:
        self.library = import_module("flashinfer") if library is None else library
        self.sizes = sizes
        self.device = device
        # zeros, because the library asks for them
        self.floats = torch.zeros(max(_FLOAT_BYTES, _decode_bytes(sizes, rows)), dtype=torch.uint8, device=device)
        self.integers = torch.zeros(_PLAN_BYTES, dtype=torch.uint8, device=device)

    def load_kernels(self) -> None:
        """Load the kernels of decodes and of prefills; the first time on a machine nvcc compiles them.

        Raises `RuntimeError`, `OSError` or `SubprocessError`, as the library does, if they cannot be compiled.
        """
        starts_B1, lasts_B = (torch.tensor(values, dtype=torch.int32) for values in ([0, 1], [1]))
        lists = PageLists(starts_B1, torch.zeros(1, dtype=torch.int32, device=self.device), lasts_B)
        self.decode(PageLists(*(values.to(self.device) for values in (starts_B1, lists.pages_N, lasts_B))))
        self.prefill().plan(starts_B1, lists)

    def decode(self, lists: PageLists) -> "PlannedDecode":
        """Return decodes whose plans read `lists` at their addresses on the device: B rows, one a sequence."""
        return PlannedDecode(self, lists)

    def captured_prefill(self, rows: int, sequences: int, pages_N: Tensor) -> "PlannedPrefill":
        """Return prefills of up to `rows` rows of `sequences` sequences, with their pages in `pages_N`."""
        zeros = (torch.zeros(count, dtype=torch.int32, device=self.device) for count in (sequences + 1, sequences))
        starts_B1, lasts_B = zeros
        return PlannedPrefill(self, starts_B1.clone(), PageLists(starts_B1, pages_N, lasts_B), rows)

    def prefill(self) -> "PlannedPrefill":
        """Return prefills of any size, which are not captured."""
        return PlannedPrefill(self)


def _decode_bytes(sizes: HeadSizes, rows: int) -> int:
    """Return the most bytes of a captured decode's parts: in tiles of 16 rows, of which up to 16 share a key head."""
    return sizes.heads * 2 * rows * 16 * (sizes.head_dim + 1) * torch.float32.itemsize


class _Planned:
    """A wrapper of the library, whose plan is copied to the device from pinned memory of its own."""

    def __init__(self, shared: FlashInfer, attention: Any) -> None:
        self._shared = shared
        self._attention = attention
        # the constructor's own buffer on the device is freed
        attention.reset_workspace_buffer(shared.floats, shared.integers)
        # a captured prefill also runs tiles after those of its plan, and reads their numbers from this memory: zeros
        # name the first sequence's first tile, which is then computed more than once
        attention._pin_memory_int_workspace_buffer.zero_()
        sizes = shared.sizes
        self._heads = sizes.heads, sizes.key_heads, sizes.head_dim, sizes.page_size
        self._dtypes = {"q_data_type": sizes.dtype, "kv_data_type": sizes.dtype}
        self._sent = torch.cuda.Event() if shared.device.type == "cuda" else None  # type: ignore[no-untyped-call]

    def run(self, q_THD: Tensor, pool: Tensor, *, scale: float, out_TM: Tensor | None = None) -> Tensor:
        """Compute attention as planned; see `PlannedBatch`. `scale` is 1 / sqrt(D)."""
        if not isclose(scale, q_THD.shape[2] ** -0.5):
            raise ValueError(f"scale is {scale}: attention by FlashInfer has 1 / sqrt(head dim)")
        o_THD = q_THD.new_empty(q_THD.shape)
        # it does not start before the previous kernel has ended, because `kernels.early` has rules that it may not keep
        self._attention.run(q_THD, (pool[0], pool[1]), out=o_THD, enable_pdl=False)
        if out_TM is None:
            return o_THD
        part_TC = out_TM[:, : o_THD.shape[1] * o_THD.shape[2]]
        part_TC.copy_(o_THD.flatten(1))
        return part_TC.view(o_THD.shape)

    def _wait(self) -> None:
        """Wait until the last plan has left the pinned memory; the host has waited for an older step already."""
        if self._sent is not None:
            self._sent.synchronize()

    def _note_sent(self) -> None:
        if self._sent is not None:
            self._sent.record()


class PlannedDecode(_Planned):
    """Decodes of one number of rows."""

    def __init__(self, shared: FlashInfer, lists: PageLists) -> None:
        attention = shared.library.BatchDecodeWithPagedKVCacheWrapper(
            shared.floats,
            "NHD",
            use_cuda_graph=True,
            # they pay where several query heads share the keys that are read
            use_tensor_cores=shared.sizes.heads > shared.sizes.key_heads,
            paged_kv_indptr_buffer=lists.starts_B1,
            paged_kv_indices_buffer=lists.pages_N,
            paged_kv_last_page_len_buffer=lists.lasts_B,
        )
        super().__init__(shared, attention)
        rows = len(lists.lasts_B)
        # `fast_decode_plan` needs one ordinary plan first, here with one page per row
        starts_B1 = torch.arange(rows + 1, dtype=torch.int32)
        pages_N = torch.zeros(rows, dtype=torch.int32, device=shared.device)
        lasts_B = torch.ones(rows, dtype=torch.int32)
        attention.plan(starts_B1, pages_N, lasts_B, *self._heads, **self._dtypes)
        self._note_sent()

    def plan(self, lists: PageLists) -> None:
        """Plan the next run. `lists` are the values that the device's lists have by then; only the pages are there.

        No sequence is empty: the row of a sequence without pages might not be a number.
        """
        self._wait()
        given = lists.starts_B1, lists.pages_N, lists.lasts_B
        self._shared.library.fast_decode_plan(self._attention, *given, *self._heads, **self._dtypes)
        self._note_sent()


class PlannedPrefill(_Planned):
    """Causal prefills. With buffers at fixed addresses their launch may be captured, after `plan_rows`."""

    def __init__(
        self,
        shared: FlashInfer,
        row_starts_B1: Tensor | None = None,
        lists: PageLists | None = None,
        rows: int = 0,
    ) -> None:
        self._rows = rows
        self._lists = lists
        buffers = {}
        if lists is not None:
            buffers = {
                "qo_indptr_buf": row_starts_B1,
                "paged_kv_indptr_buf": lists.starts_B1,
                "paged_kv_indices_buf": lists.pages_N,
                "paged_kv_last_page_len_buf": lists.lasts_B,
            }
        attention = shared.library.BatchPrefillWithPagedKVCacheWrapper(
            shared.floats, "NHD", use_cuda_graph=lists is not None, **buffers
        )
        super().__init__(shared, attention)

    def plan(self, row_starts_B1: Tensor, lists: PageLists) -> None:
        """Plan the next run: sequence b has the rows from `row_starts_B1[b]` on; only the pages are on the device.

        The last row of a sequence is its last position. Rows after the last sequence's are not written.
        """
        self._wait()
        contexts_B = (lists.starts_B1.diff() - 1).clamp(min=0) * self._shared.sizes.page_size + lists.lasts_B
        self._attention.plan(
            self._pinned(row_starts_B1),
            self._pinned(lists.starts_B1),
            lists.pages_N,
            self._pinned(lists.lasts_B),
            *self._heads,
            causal=True,
            # split positions would need memory that grows with the captured shape
            disable_split_kv=self._lists is not None,
            max_token_per_sequence=int(row_starts_B1.diff().max()),
            seq_lens=self._pinned(contexts_B),
            **self._dtypes,
        )
        self._note_sent()

    def _pinned(self, values: Tensor) -> Tensor:
        """Return values from which the library's copy to the device does not wait for that device."""
        return values.pin_memory() if self._sent is not None else values

    def plan_rows(self) -> None:
        """Plan all rows of the captured shape, as the first sequence's; they read page 0 alone."""
        assert self._lists is not None, "only a captured prefill has a largest number of rows"
        size, sequences = self._shared.sizes.page_size, len(self._lists.lasts_B)
        pages = min(-(-self._rows // size), len(self._lists.pages_N))
        first_B = torch.zeros(sequences, dtype=torch.int32)
        first_B[0] = 1
        starts_B1 = torch.ones(sequences + 1, dtype=torch.int32)
        starts_B1[0] = 0
        pages_N = torch.zeros(pages, dtype=torch.int32, device=self._shared.device)
        self.plan(starts_B1 * self._rows, PageLists(starts_B1 * pages, pages_N, first_B * size))
