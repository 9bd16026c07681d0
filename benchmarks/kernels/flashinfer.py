"""Times paged attention against FlashInfer's, if that is installed; its first use compiles for some minutes."""

from functools import partial
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from benchmarks.kernels.paged_attention import HEAD_DIM, HEADS, PAGE, layout_of, pools_of, queries
from benchmarks.kernels.row import Row, check, microseconds, microseconds_captured
from stoop_worker.kernels.paged_attention import PagedLayout, paged_attention, reference
from stoop_worker.kernels.paged_attention.decode import decode

__all__ = ["rows"]

CONTEXT = 900
WORKSPACE_BYTES = 256 << 20


def rows() -> list[Row]:
    """Return decodes of several batches, and a prefill without a causal mask; nothing without FlashInfer."""
    if find_spec("flashinfer") is None:
        return []
    return [*(decode_row(batch) for batch in (1, 16, 64, 128)), prefill_row(8, 736)]


def decode_row(batch: int) -> Row:
    import flashinfer

    layout = layout_of(batch, 1, CONTEXT, 0)
    pools, q = pools_of(layout, torch.bfloat16), queries(batch)
    theirs: Any = flashinfer.BatchDecodeWithPagedKVCacheWrapper(workspace(), "NHD")
    theirs.plan(*pages_of(layout), HEADS, HEADS, HEAD_DIM, PAGE, q_data_type=q.dtype, kv_data_type=q.dtype)
    exact = reference.paged_attention(q.float(), pools[0].float(), layout)
    for found in (decode(q, pools[0], layout), theirs.run(q, (pools[0][0], pools[0][1]))):
        check(found, exact, 1e-2)
    ours_us = microseconds_captured([partial(decode, q, pool, layout) for pool in pools])
    theirs_us = microseconds_captured([partial(theirs.run, q, (pool[0], pool[1])) for pool in pools])
    rate = f"{batch * CONTEXT * 4 * HEADS * HEAD_DIM / ours_us / 1e6:.2f} TB/s"
    return Row("decode bf16", f"{batch} x {CONTEXT}", ours_us, theirs_us, "FlashInfer", rate)


def prefill_row(batch: int, count: int) -> Row:
    import flashinfer

    layout = layout_of(batch, count, count, count)
    pool, q = pools_of(layout, torch.bfloat16)[0], queries(batch * count)
    theirs: Any = flashinfer.BatchPrefillWithPagedKVCacheWrapper(workspace(), "NHD", backend="fa3")
    pages = (HEADS, HEADS, HEAD_DIM, PAGE)
    theirs.plan(layout.cu_seqlens_B1, *pages_of(layout), *pages, causal=False, q_data_type=q.dtype)
    exact = reference.paged_attention(q.float(), pool.float(), layout)
    for found in (paged_attention(q, pool, layout), theirs.run(q, (pool[0], pool[1]))):
        check(found, exact, 1e-2)
    ours_us = microseconds(partial(paged_attention, q, pool, layout))
    theirs_us = microseconds(partial(theirs.run, q, (pool[0], pool[1])))
    rate = f"{4 * batch * count**2 * HEADS * HEAD_DIM / ours_us / 1e6:.0f} TFLOP/s"
    return Row("prefill", f"{batch} x {count}, all see all", ours_us, theirs_us, "FlashInfer fa3", rate)


def workspace() -> Tensor:
    return torch.zeros(WORKSPACE_BYTES, dtype=torch.uint8, device="cuda")


def pages_of(layout: PagedLayout) -> tuple[Tensor, Tensor, Tensor]:
    """Return the page tables in FlashInfer's form: starts, page numbers, and positions in each last page."""
    contexts_B = layout.context_lens_B
    counts_B = (contexts_B + PAGE - 1) // PAGE
    starts_B1 = torch.cat((counts_B.new_zeros(1), counts_B.cumsum(0))).int()
    pages = [row[:count] for row, count in zip(layout.page_table_BP, counts_B.tolist(), strict=True)]
    return starts_B1, torch.cat(pages).int(), ((contexts_B - 1) % PAGE + 1).int()
