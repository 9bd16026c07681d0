"""Times a decoder's layers in one decode step, bfloat16, captured: fewer launches against the plain ones.

A row's time is that of one layer. The library's side is the step as it runs with `fused=False`.
"""

from functools import partial

import torch
from torch import Tensor

from benchmarks.kernels.paged_attention import layout_of
from benchmarks.kernels.row import Row, check, microseconds_captured
from stoop_worker.engine.tensors import KVView
from stoop_worker.kernels.block_fp8 import BlockFp8, Weight
from stoop_worker.kernels.layer_stack import stack_of
from stoop_worker.kernels.paged_attention import PagedLayout
from stoop_worker.kernels.rotate_attend import groups, reference
from stoop_worker.kernels.rotate_write import HeadNorms, Places, rotation_table
from stoop_worker.models.decoder import decode_text, text
from stoop_worker.models.decoder.weights import Block, DecoderWeights

__all__ = ["rows"]

CONTEXT, LAYERS = 960, 8
SIZES = {
    "Llama 3.2 1B": (2048, 8192, 32, 8, 64, False),
    "Qwen3-4B": (2560, 9728, 32, 8, 128, True),
}
FLOAT8 = ", float8"
"""Model dim, inner dim of the MLP, query heads, key heads, head dim, and whether heads have norms.

With `FLOAT8` behind its name, a model's weights are in float8 with a scale for each block.
"""

COUNTS = [1, 2, 4, 8, 16, 32, 64]


def made(*shape: int, scale: float = 1.0) -> Tensor:
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16) * scale


def weight(name: str, out: int, width: int) -> Weight:
    if name.endswith(FLOAT8):
        scales = torch.full((out // 128, width // 128), width**-0.5, device="cuda")
        return BlockFp8(made(out, width).to(torch.float8_e4m3fn), scales, 128)
    return made(out, width, scale=width**-0.5)


def block(name: str) -> Block:
    dim, inner, heads, key_heads, head_dim, normed = sizes_of(name)
    return Block(
        norm=made(dim),
        qkv=weight(name, (heads + 2 * key_heads) * head_dim, dim),
        out=weight(name, dim, heads * head_dim),
        head_norms=HeadNorms(made(head_dim), made(head_dim), 1e-6) if normed else None,
        mlp_norm=made(dim),
        gate_up=weight(name, 2 * inner, dim),
        down=weight(name, dim, inner),
    )


def sizes_of(name: str) -> tuple[int, int, int, int, int, bool]:
    return SIZES[name.removesuffix(FLOAT8)]


def places_of(layout: PagedLayout, head_dim: int) -> Places:
    positions = layout.context_lens_B.long() - 1
    pages = layout.page_table_BP.gather(1, (positions // layout.page_size)[:, None])[:, 0].long()
    table = rotation_table(CONTEXT + 1, head_dim, 500000.0, torch.device("cuda"))
    return Places(positions, table, pages * layout.page_size + positions % layout.page_size)


def step(name: str, count: int) -> Row:
    dim, _, _, key_heads, head_dim, _ = sizes_of(name)
    layout = layout_of(count, 1, CONTEXT, 0)
    pool = made(LAYERS, 2, layout.page_table_BP.numel(), layout.page_size, key_heads, head_dim)
    places, x, none = places_of(layout, head_dim), made(count, dim), made(1, dim)
    kv = KVView(places.positions, places.slots_T, layout, pool, lambda: None)
    weights = DecoderWeights(none, tuple(block(name) for _ in range(LAYERS)), none[0], none, 1e-6)
    stack = stack_of(weights.blocks, weights.epsilon)
    check(decode_text.step(x, kv, places, weights, stack), text.forward(x, kv, places, weights), 3e-2)
    ours_us, plain_us = (
        microseconds_captured([partial(call, x, kv, places, weights)]) / LAYERS
        for call in (partial(decode_text.step, stack=stack), text.forward)
    )
    return Row(f"a layer of {name}", f"{count} x {CONTEXT}", ours_us, plain_us, "plain step", "")


def whole(name: str) -> Row:
    """Time all layers of one row in one launch, against a launch for each step of a layer."""
    dim, _, _, key_heads, head_dim, _ = sizes_of(name)
    layout = layout_of(1, 1, CONTEXT, 0)
    pool = made(LAYERS, 2, layout.page_table_BP.numel(), layout.page_size, key_heads, head_dim)
    places, x, none = places_of(layout, head_dim), made(1, dim), made(1, dim)
    kv = KVView(places.positions, places.slots_T, layout, pool, lambda: None)
    weights = DecoderWeights(none, tuple(block(name) for _ in range(LAYERS)), none[0], none, 1e-6)
    step = partial(decode_text.step, x, kv, places, weights)
    stack = stack_of(weights.blocks, weights.epsilon)
    check(step(stack), step(), 3e-2)
    ours_us, theirs_us = (microseconds_captured([call]) / LAYERS for call in (partial(step, stack), step))
    return Row(f"a layer of {name}, in one launch of all", f"1 x {CONTEXT}", ours_us, theirs_us, "five launches", "")


def between(name: str, count: int) -> Row:
    """Time the steps between qkv and out, in one launch against two."""
    _, _, heads, key_heads, head_dim, normed = sizes_of(name)
    layout = layout_of(count, 1, CONTEXT, 0)
    pool = made(LAYERS, 2, layout.page_table_BP.numel(), layout.page_size, key_heads, head_dim)
    qkv = made(count, (heads + 2 * key_heads) * head_dim)
    norms = HeadNorms(made(head_dim), made(head_dim), 1e-6) if normed else None
    given = qkv, places_of(layout, head_dim)
    calls = groups.rotate_attend_groups, reference.rotate_attend_groups
    check(calls[0](*given, pool[0], layout, norms=norms), calls[1](*given, pool[0], layout, norms=norms), 1e-2)
    ours_us, two_us = (
        microseconds_captured([partial(call, *given, layer, layout, norms=norms) for layer in pool]) for call in calls
    )
    return Row(f"rotate, write, attend, {name}", f"{count} x {CONTEXT}", ours_us, two_us, "two launches", "")


def rows() -> list[Row]:
    """Return a layer of each model, and its part between two products."""
    return [
        *(whole(name) for name in (*SIZES, "Qwen3-4B" + FLOAT8)),
        *(step(name, count) for name in (*SIZES, "Qwen3-4B" + FLOAT8) for count in COUNTS),
        *(between(name, count) for name in SIZES for count in COUNTS[:5]),
    ]
