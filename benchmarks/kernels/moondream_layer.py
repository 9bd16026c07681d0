"""Times a layer of Moondream 3's decode step, bfloat16, at a context of 900: with experts, in several forms.

The first form sorts the pairs of tokens and experts, and runs the experts after attention. The others find the experts
without a sort, run them beside attention, or both; then come other splits of the products of one row.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from benchmarks.kernels.row import Row, check, microseconds_captured
from stoop_worker.engine.tensors import KVView
from stoop_worker.kernels.moe import ExpertLinear, kernel
from stoop_worker.kernels.moe import products as expert_products
from stoop_worker.kernels.moe.products import Cuts
from stoop_worker.kernels.paged_attention import PagedLayout
from stoop_worker.kernels.rotate_write import rotation_table
from stoop_worker.kernels.row_linear import row_linear
from stoop_worker.kernels.skinny_linear import products
from stoop_worker.models.blocks.layers import LayerNorm, Linear
from stoop_worker.models.moondream import decode_text
from stoop_worker.models.moondream.config_parts import TauConfig
from stoop_worker.models.moondream.decode_text import MergedBlock
from stoop_worker.models.moondream.weights import MoE, Tau

__all__ = ["alternatives", "rows"]

WIDTH, HEADS, HEAD_DIM, PAGE, LAYERS = 2048, 32, 64, 16, 6
EXPERTS, CHOSEN, INNER, CONTEXT = 64, 8, 1024, 900
COUNTS = (1, 2, 4, 8, 16, 32, 64)
FORMS = {"sorted, in line": (0, 0), "no sort": (16, 0), "beside": (0, 64), "no sort, beside": (16, 64)}
"""The largest numbers of rows that need no sort, and that attend beside their experts."""


def made(*shape: int, scale: float = 1.0) -> Tensor:
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16) * scale


def block() -> MergedBlock:
    first = 3 * WIDTH + 2 * EXPERTS  # padded by zeros, as `merge` does
    up, down = made(EXPERTS, 2 * INNER, WIDTH, scale=WIDTH**-0.5), made(EXPERTS, WIDTH, INNER, scale=INNER**-0.5)
    router = Linear(made(EXPERTS, WIDTH), made(EXPERTS))
    return MergedBlock(
        LayerNorm(made(WIDTH), made(WIDTH)),
        Linear(made(first, WIDTH, scale=WIDTH**-0.5), made(first)),
        Linear(made(WIDTH, WIDTH, scale=WIDTH**-0.5), made(WIDTH)),
        Tau(made(2 * HEADS, 3 * WIDTH, scale=0.01), made(HEADS), TauConfig()),
        MoE(router, ExpertLinear(up), ExpertLinear(down), CHOSEN),
    )


def view(count: int) -> KVView:
    pages = -(-CONTEXT // PAGE)
    table_BP = torch.randperm(count * pages, device="cuda").int().view(count, pages)
    positions_B = torch.full((count,), CONTEXT - 1, device="cuda")
    slots_B = table_BP[:, -1].long() * PAGE + (CONTEXT - 1) % PAGE
    layout = PagedLayout(
        cu_seqlens_B1=torch.arange(count + 1, dtype=torch.int32, device="cuda"),
        context_lens_B=(positions_B + 1).int(),
        page_table_BP=table_BP,
        prefix_lens_B=torch.zeros(count, dtype=torch.int32, device="cuda"),
        cu_seqlens=(),
        context_lens=(),
        prefix_lens=(),
        page_size=PAGE,
    )
    return KVView(positions_B, slots_B, layout, made(LAYERS, 2, count * pages, PAGE, HEADS, HEAD_DIM), lambda: None)


@contextmanager
def replaced(owner: Any, name: str, value: object) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


class Layers:
    """Layers and places for `count` rows, and the step through them in each form."""

    def __init__(self, blocks: tuple[MergedBlock, ...], count: int) -> None:
        self.count, self._blocks = count, blocks
        self._x_BC, self._kv = made(count, WIDTH), view(count)
        self._table_SF2 = rotation_table(1024, HEAD_DIM // 2, 1.5e6, torch.device("cuda"))

    def run(self, form: str) -> Tensor:
        unsorted, beside = FORMS[form]
        outputs = partial(kernel.expert_outputs, most_unsorted=unsorted)
        with replaced(decode_text.moe, "expert_outputs", outputs):
            return decode_text.step(self._x_BC, self._kv, self._blocks, self._table_SF2, most_beside=beside)

    def microseconds(self, form: str) -> float:
        return microseconds_captured([partial(self.run, form)]) / LAYERS


def rows() -> list[Row]:
    """Return each form at each number of rows, against the first one."""
    blocks = tuple(block() for _ in range(LAYERS))
    found = []
    for layers in (Layers(blocks, count) for count in COUNTS):
        plain, *others = FORMS
        plain_us = layers.microseconds(plain)
        expected = layers.run(plain).clone()
        for form in others:
            check(layers.run(form), expected, 2e-2)
            us = layers.microseconds(form)
            found.append(Row(f"a layer with experts, {form}", f"{layers.count} x {CONTEXT}", us, plain_us, plain, ""))
    return found


def alternatives() -> list[Row]:
    """Return other splits of one row's products, in the last form."""
    layers = Layers(tuple(block() for _ in range(LAYERS)), 1)

    def time(about: str, owner: Any, attribute: str, value: object) -> Row:
        with replaced(owner, attribute, value):
            us = layers.microseconds([*FORMS][-1])
        return Row("a layer with experts", about, us, None, "", "")

    return [time(*case) for case in _cases()]


def _cases() -> Iterator[tuple[str, Any, str, object]]:
    """Return a name, and the attribute to replace: of the first product, the second, and those of the experts."""
    yield "as it is", products, "_WHOLE_OF_ONE", products._WHOLE_OF_ONE
    yield "first by its rows", decode_text, "skinny_linear", _by_rows
    for rows_, columns, stages, held in ((32, 128, 4, 2), (32, 256, 4, 1), (16, 256, 4, 2)):
        cut = replace(products._WHOLE_OF_ONE, rows=rows_, columns=columns, stages=stages, held=held)
        yield f"first {rows_} x {columns}, {stages} s", products, "_WHOLE_OF_ONE", cut
    for rows_, parts, stages in ((64, 4, 3), (32, 4, 4), (32, 2, 4), (64, 8, 2)):
        cut = replace(products._SPLIT_OF_ONE, rows=rows_, parts=parts, stages=stages)
        yield f"second {rows_}, {parts} parts, {stages} s", products, "_SPLIT_OF_ONE", cut
    up, down = expert_products._ONE
    for rows_, columns, stages in ((32, 128, 4), (16, 128, 6), (16, 256, 4), (32, 256, 3), (64, 64, 4)):
        cuts = Cuts(replace(up, rows=rows_, columns=columns, stages=stages), down)
        yield f"up {rows_} x {columns}, {stages} s", expert_products, "_ONE", cuts
    others = ((32, 256, 3, 0), (32, 256, 3, 2), (32, 128, 4, 2), (16, 256, 4, 1), (64, 128, 4, 1))
    for rows_, columns, stages, held in others:
        cuts = Cuts(up, replace(down, rows=rows_, columns=columns, stages=stages, held=held))
        yield f"down {rows_} x {columns}, {stages} s, {held} held", expert_products, "_ONE", cuts


def _by_rows(x_1C: Tensor, weight_NC: Tensor, bias_N: Tensor) -> Tensor:
    return row_linear(x_1C, weight_NC, added_to_BN=bias_N[None])
