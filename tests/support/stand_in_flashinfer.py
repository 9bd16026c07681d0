"""A stand-in for the package flashinfer, in plain torch: its two wrappers of paged attention, and its faster plan.

It follows the library's documentation. A captured wrapper reads page lists and plans at their addresses, so it
checks that both say the same, and that no other wrapper has been planned in the memory that all of them share.
"""

from typing import Any

import torch
from torch import Tensor

from stoop_worker.kernels.paged_attention import PagedLayout, reference

__all__ = ["StandInFlashInfer"]


class StandInFlashInfer:
    """The package's functions, and the numbers of plans and runs."""

    def __init__(self) -> None:
        self.planned: Any = None  # the wrapper whose plan is in the shared memory
        self.plans: list[str] = []
        self.runs: list[str] = []

    def BatchDecodeWithPagedKVCacheWrapper(self, workspace: Tensor, layout: str, **settings: Any) -> "_Decode":
        return _Decode(self, workspace, layout, **settings)

    def BatchPrefillWithPagedKVCacheWrapper(self, workspace: Tensor, layout: str, **settings: Any) -> "_Prefill":
        return _Prefill(self, workspace, layout, **settings)

    def fast_decode_plan(self, wrapper: "_Decode", *given: Any, **dtypes: torch.dtype) -> None:
        """Plan without any copy to the wrapper's buffers."""
        wrapper.note_plan(*given, **dtypes)


class _Wrapper:
    kind = ""

    def __init__(self, library: StandInFlashInfer, workspace: Tensor, layout: str) -> None:
        assert layout == "NHD" and workspace.dtype == torch.uint8
        self.library = library
        self.workspace: Tensor | None = None
        self.row_starts = [0]

    def reset_workspace_buffer(self, floats: Tensor, integers: Tensor) -> None:
        assert not self.library.plans or integers.numel() == 8 << 20
        self.workspace = integers
        self._pin_memory_int_workspace_buffer = torch.full_like(integers, 0xEE)  # memory of others before

    def note(self, starts: Tensor, lasts: Tensor, sizes: tuple[int, ...], dtypes: dict[str, torch.dtype]) -> None:
        assert starts.device.type == lasts.device.type == "cpu" and starts.dtype == lasts.dtype == torch.int32
        assert dtypes["q_data_type"] == dtypes["kv_data_type"]
        self.library.planned = self
        self.library.plans.append(self.kind)
        self.starts, self.lasts, self.sizes = starts.tolist(), lasts.tolist(), sizes

    def attend(self, q: Tensor, pool: tuple[Tensor, Tensor], pages: Tensor, out: Tensor) -> Tensor:
        """Write the rows of each sequence that has any; the others stay NaN."""
        assert self.library.planned is self, "another batch was planned in the shared memory"
        self.library.runs.append(self.kind)
        heads, key_heads, head_dim, page_size = self.sizes
        assert q.shape[1:] == (heads, head_dim) and pool[0].shape[1:] == (page_size, key_heads, head_dim)
        assert out.is_contiguous()
        out.fill_(torch.nan)
        bounds = list(zip(self.row_starts, self.row_starts[1:], strict=False))
        kept = [row for row, (start, end) in enumerate(bounds) if end > start]
        counts = [self.starts[row + 1] - self.starts[row] for row in kept]
        assert all(count > 0 and 1 <= self.lasts[row] <= page_size for row, count in zip(kept, counts, strict=True))
        table = torch.zeros(len(kept), max(counts), dtype=torch.int32)
        for at, row in enumerate(kept):
            table[at, : counts[at]] = pages[self.starts[row] : self.starts[row + 1]]
        contexts = [(count - 1) * page_size + self.lasts[row] for row, count in zip(kept, counts, strict=True)]
        starts = [bounds[row][0] for row in kept] + [bounds[kept[-1]][1]]
        layout = PagedLayout(
            cu_seqlens_B1=torch.tensor(starts),
            context_lens_B=torch.tensor(contexts, dtype=torch.int32),
            page_table_BP=table,
            prefix_lens_B=torch.zeros(len(kept), dtype=torch.int32),
            cu_seqlens=tuple(starts),
            context_lens=tuple(contexts),
            prefix_lens=(0,) * len(kept),
            page_size=page_size,
        )
        out[: starts[-1]] = reference.paged_attention(q[: starts[-1]], torch.stack(pool), layout)
        return out


class _Decode(_Wrapper):
    kind = "decode"

    def __init__(self, library: StandInFlashInfer, workspace: Tensor, layout: str, **settings: Any) -> None:
        super().__init__(library, workspace, layout)
        assert settings["use_cuda_graph"]
        self.tensor_cores = settings["use_tensor_cores"]
        self.device_starts = settings["paged_kv_indptr_buffer"]
        self.device_pages = settings["paged_kv_indices_buffer"]
        self.device_lasts = settings["paged_kv_last_page_len_buffer"]
        self.row_starts = list(range(len(self.device_starts)))

    def plan(self, starts: Tensor, pages: Tensor, lasts: Tensor, *sizes: int, **dtypes: torch.dtype) -> None:
        self.device_starts.copy_(starts)
        self.device_lasts.copy_(lasts)
        self.device_pages[: len(pages)].copy_(pages)
        self.note_plan(starts, pages, lasts, *sizes, **dtypes)

    def note_plan(self, starts: Tensor, pages: Tensor, lasts: Tensor, *sizes: int, **dtypes: torch.dtype) -> None:
        assert len(lasts) == len(self.device_lasts) and len(pages) == starts[-1]
        assert (starts.diff() > 0).all(), "a row without pages"
        self.note(starts, lasts, sizes, dtypes)
        assert self.tensor_cores == (sizes[0] > sizes[1])

    def run(self, q: Tensor, pool: tuple[Tensor, Tensor], *, out: Tensor, enable_pdl: bool) -> Tensor:
        assert self.device_starts.tolist() == self.starts and self.device_lasts.tolist() == self.lasts
        assert len(q) == len(self.lasts)
        return self.attend(q, pool, self.device_pages, out)


class _Prefill(_Wrapper):
    kind = "prefill"

    def __init__(self, library: StandInFlashInfer, workspace: Tensor, layout: str, **settings: Any) -> None:
        super().__init__(library, workspace, layout)
        self.fixed = settings.pop("use_cuda_graph")
        assert bool(settings) == self.fixed
        self.buffers = settings
        self.most_rows = 0

    def plan(
        self,
        row_starts: Tensor,
        starts: Tensor,
        pages: Tensor,
        lasts: Tensor,
        *sizes: int,
        causal: bool,
        disable_split_kv: bool,
        max_token_per_sequence: int,
        seq_lens: Tensor,
        **dtypes: torch.dtype,
    ) -> None:
        assert not (self.fixed and self._pin_memory_int_workspace_buffer.any()), (
            "tiles behind the plan name no sequence"
        )
        assert causal and len(pages) == starts[-1] and len(row_starts) == len(starts) == len(lasts) + 1
        assert max_token_per_sequence == row_starts.diff().max()
        contexts = (starts.diff() - 1).clamp(min=0) * sizes[3] + lasts
        assert torch.equal(seq_lens, contexts) and seq_lens.dtype == torch.int32
        if self.fixed:
            assert disable_split_kv and len(starts) == len(self.buffers["paged_kv_indptr_buf"])
            self.most_rows = self.most_rows or int(row_starts[-1])
            assert row_starts[-1] <= self.most_rows
            self.buffers["paged_kv_indices_buf"][: len(pages)].copy_(pages)
            pages = self.buffers["paged_kv_indices_buf"]
        self.note(starts, lasts, sizes, dtypes)
        self.row_starts, self.pages = row_starts.tolist(), pages

    def run(self, q: Tensor, pool: tuple[Tensor, Tensor], *, out: Tensor, enable_pdl: bool) -> Tensor:
        assert len(q) == (self.most_rows if self.fixed else self.row_starts[-1])
        return self.attend(q, pool, self.pages, out)
