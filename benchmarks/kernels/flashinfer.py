"""Times paged attention against FlashInfer's, if that is installed; its first use compiles for some minutes.

`python -m benchmarks.kernels flashinfer`. Batches are planned before they are timed, as in the engine, and the time of
a plan has rows of its own. FlashInfer computes a two-way prefix in two passes: the image's rows, then the prompt's.
"""

import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import Tensor

from benchmarks.kernels.grouped_attention import LLAMA_1B, QWEN_4B, Sizes, pools_of
from benchmarks.kernels.paged_attention import PAGE, PREFIX, layout_of
from benchmarks.kernels.row import Row, check, microseconds, microseconds_captured
from stoop_worker.engine.device.attention_choice import flashinfer_lacks
from stoop_worker.kernels.paged_attention import PagedLayout, paged_attention, reference
from stoop_worker.kernels.paged_attention.flashinfer import FlashInfer, HeadSizes, PageLists

__all__ = ["rows"]

MOONDREAM: Sizes = (32, 32, 64)
MODELS = {"Llama 1B": LLAMA_1B, "Qwen3-4B": QWEN_4B, "Moondream": MOONDREAM}
BATCHES = (1, 16, 64)
CONTEXT = 900
PREFILLS = [(1, 750), (8, 750), (1, 4000)]
PLANS = 50


def rows() -> list[Row]:
    """Return decodes, prefills and plans; nothing without FlashInfer."""
    if (missing := flashinfer_lacks()) is not None:
        print(missing)
        return []
    return [
        *(row for name in MODELS for batch in BATCHES for row in decode_rows(name, batch)),
        *(row for name in ("Llama 1B", "Qwen3-4B") for case in PREFILLS for row in prefill_rows(name, *case)),
        *(prefix_row(count) for count in (1, 8)),
    ]


def decode_rows(name: str, batch: int) -> list[Row]:
    """Time the decode of a batch, and its plan."""
    sizes = MODELS[name]
    heads, key_heads, head_dim = sizes
    layout = layout_of(batch, 1, CONTEXT, 0)
    pools, q = pools_of(layout, sizes), queries(batch, sizes)
    lists = lists_of(layout)
    place = on_device(lists)
    planned = flashinfer(sizes).decode(place)
    for values, to in zip(tensors(lists), tensors(place), strict=True):
        to.copy_(values)  # the constructor's own plan wrote there
    planned.plan(lists)
    run = partial(planned.run, scale=head_dim**-0.5)
    exact = reference.paged_attention(q.float(), pools[0].float(), layout)
    for found in (paged_attention(q, pools[0], layout), run(q, pools[0])):
        check(found, exact, 1e-2)
    ours_us = microseconds_captured([partial(paged_attention, q, pool, layout) for pool in pools])
    theirs_us = microseconds_captured([partial(run, q, pool) for pool in pools])
    rate = f"{batch * CONTEXT * 4 * key_heads * head_dim / ours_us / 1e6:.2f} TB/s"
    shape = f"{batch} x {CONTEXT}, {heads}/{key_heads} x {head_dim}"
    plan_us = host_microseconds(partial(planned.plan, lists))
    return [
        Row(f"decode, {name}", shape, ours_us, theirs_us, "FlashInfer", rate),
        Row(f"FlashInfer's plan, {name}", shape, plan_us, None, "", ""),
    ]


def prefill_rows(name: str, batch: int, count: int) -> list[Row]:
    """Time a causal prefill against both generations of FlashAttention in FlashInfer."""
    sizes = MODELS[name]
    heads, key_heads, head_dim = sizes
    layout = layout_of(batch, count, count, 0)
    pool, q = pools_of(layout, sizes)[0], queries(batch * count, sizes)
    exact = reference.paged_attention(q.float(), pool.float(), layout)
    check(paged_attention(q, pool, layout), exact, 1e-2)
    ours_us = microseconds(partial(paged_attention, q, pool, layout))
    rate = f"{2 * batch * count * count * heads * head_dim / ours_us / 1e6:.0f} TFLOP/s"
    shape = f"{batch} x {count}, {heads}/{key_heads} x {head_dim}"
    found = []
    for backend in backends():
        run = pass_of(layout.cu_seqlens_B1, lists_of(layout), sizes, causal=True, backend=backend)
        check(run(q, pool), exact, 1e-2)
        theirs_us = microseconds(partial(run, q, pool))
        found.append(Row(f"prefill, {name}", shape, ours_us, theirs_us, f"FlashInfer {backend}", rate))
    return found


def prefix_row(batch: int) -> Row:
    """Time a prefill of images with prompts, whose images attend in both directions."""
    count, (heads, _, head_dim) = 750, MOONDREAM
    layout = layout_of(batch, count, count, PREFIX)
    pool, q = pools_of(layout, MOONDREAM)[0], queries(batch * count, MOONDREAM)
    exact = reference.paged_attention(q.float(), pool.float(), layout)
    backend = backends()[-1]
    image = pass_of(starts(batch, PREFIX), lists_of(layout, PREFIX), MOONDREAM, causal=False, backend=backend)
    prompt = pass_of(starts(batch, count - PREFIX), lists_of(layout), MOONDREAM, causal=True, backend=backend)

    def two_passes() -> Tensor:
        q_BTHD = q.view(batch, count, heads, head_dim)
        out = torch.empty_like(q_BTHD)
        out[:, :PREFIX] = image(q_BTHD[:, :PREFIX].flatten(0, 1), pool).view(batch, PREFIX, heads, head_dim)
        out[:, PREFIX:] = prompt(q_BTHD[:, PREFIX:].flatten(0, 1), pool).view(batch, -1, heads, head_dim)
        return out.flatten(0, 1)

    for found in (paged_attention(q, pool, layout), two_passes()):
        check(found, exact, 1e-2)
    ours_us, theirs_us = microseconds(partial(paged_attention, q, pool, layout)), microseconds(two_passes)
    rate = f"{4 * batch * count**2 * heads * head_dim / ours_us / 1e6:.0f} TFLOP/s"
    shape = f"{batch} x {count}, prefix {PREFIX}"
    return Row("prefill, Moondream", shape, ours_us, theirs_us, f"FlashInfer {backend}, two passes", rate)


def flashinfer(sizes: Sizes) -> FlashInfer:
    return FlashInfer(HeadSizes(*sizes, PAGE, torch.bfloat16), torch.device("cuda"), rows=256)


def backends() -> list[str]:
    """Return the generations of FlashAttention that run on this device."""
    return ["fa2", "fa3"] if torch.cuda.get_device_capability() == (9, 0) else ["fa2"]


def pass_of(
    row_starts_B1: Tensor, lists: PageLists, sizes: Sizes, *, causal: bool, backend: str
) -> Callable[[Tensor, Tensor], Tensor]:
    """Return a planned pass of the library's own, which takes queries and a pool."""
    from flashinfer import BatchPrefillWithPagedKVCacheWrapper  # type: ignore[import-not-found]

    workspace = torch.zeros(256 << 20, dtype=torch.uint8, device="cuda")
    theirs: Any = BatchPrefillWithPagedKVCacheWrapper(workspace, "NHD", backend=backend)
    theirs.plan(
        row_starts_B1.cpu(), lists.starts_B1, lists.pages_N, lists.lasts_B, *sizes, PAGE,
        causal=causal, q_data_type=torch.bfloat16, kv_data_type=torch.bfloat16,
    )  # fmt: skip
    return lambda q, pool: theirs.run(q, (pool[0], pool[1]))


def queries(count: int, sizes: Sizes) -> Tensor:
    return torch.randn(count, sizes[0], sizes[2], device="cuda", dtype=torch.bfloat16)


def starts(batch: int, count: int) -> Tensor:
    return torch.arange(batch + 1, dtype=torch.int32) * count


def lists_of(layout: PagedLayout, context: int | None = None) -> PageLists:
    """Return the page lists of equal sequences, up to `context`; the pages are on the device."""
    batch, length = len(layout.context_lens), context or layout.context_lens[0]
    count = -(-length // PAGE)
    lasts_B = torch.full((batch,), (length - 1) % PAGE + 1, dtype=torch.int32)
    return PageLists(starts(batch, count), layout.page_table_BP[:, :count].flatten(), lasts_B)


def tensors(lists: PageLists) -> tuple[Tensor, Tensor, Tensor]:
    return lists.starts_B1, lists.pages_N, lists.lasts_B


def on_device(lists: PageLists) -> PageLists:
    """Return room for lists on the device."""
    return PageLists(*(torch.empty_like(values, device="cuda") for values in tensors(lists)))


def host_microseconds(call: Callable[[], object]) -> float:
    """Return the median time of a call on the host, which starts a copy."""
    times = []
    for _ in range(PLANS):
        torch.cuda.synchronize()
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return median(times) * 1e6
