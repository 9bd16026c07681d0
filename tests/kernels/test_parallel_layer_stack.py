"""Parallel layers in one launch, against plain torch in float32: the kernel's source, compiled for the CPU.

Warps run in a random order there, and copies arrive late; what has not arrived is NaN.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from stoop_worker.engine.tensors import KVView
from stoop_worker.kernels.layer_norm.reference import EPSILON
from stoop_worker.kernels.layer_stack import hopper
from stoop_worker.kernels.layer_stack.parallel import ParallelLayers
from stoop_worker.kernels.rope import rope
from stoop_worker.kernels.rotate_write import Places
from stoop_worker.models.blocks.layers import LayerNorm, Linear
from stoop_worker.models.moondream import decode_text
from stoop_worker.models.moondream.decode_text import MergedBlock
from tests.support.emulated_stack import emulate, has_gcc
from tests.support.paged_row import PagedRow
from tests.support.random_blocks import randn

pytestmark = pytest.mark.skipif(not has_gcc(), reason="g++ compiles the kernel for the CPU")

PAGE, LAYERS, PROGRAMS = 16, 2, 33
DIM, INNER, HEADS, HEAD_DIM = 1024, 1024, 16, 64
ROUNDING = 8e-3
"""The error of bfloat16's roundings, as a share of a row's norm."""


def random_block(unread: int = 32) -> MergedBlock:
    """Return a layer whose first product has some rows that are not read."""
    first, second = 3 * DIM + INNER + unread, DIM + INNER
    return MergedBlock(
        LayerNorm(1 + randn(DIM, scale=0.1), randn(DIM, scale=0.5)),
        Linear(randn(first, DIM, scale=DIM**-0.5), randn(first)),
        Linear(randn(DIM, second, scale=second**-0.5), randn(DIM)),
    )


@dataclass
class Decoder:
    blocks: tuple[MergedBlock, ...]
    pool: Tensor
    row: PagedRow
    stack: hopper.LayerStack

    def run(self, x_1C: Tensor, context: int, places: Places) -> Tensor:
        assert self.stack.takes(x_1C, places, self.pool, self.row.layout(context))
        return self.stack.run(x_1C, places, self.pool, self.row.layout(context))

    def view(self, context: int) -> KVView:
        places = self.row.places(context)
        return KVView(places.positions, places.slots_T, self.row.layout(context), self.pool, lambda: None)

    def expected(self, x_1C: Tensor, context: int, places: Places) -> Tensor:
        x = x_1C.float()
        for pool, block in zip(self.pool, self.blocks, strict=True):
            norm = functional.layer_norm(x, [DIM], block.ln.weight.float(), block.ln.bias.float(), EPSILON)
            made = norm @ block.first.weight.float().T + block.first.bias.float()
            inner = functional.gelu(made[:, 3 * DIM : 3 * DIM + INNER], approximate="tanh")
            attended = self.attended(made[:, : 3 * DIM], pool, context, places)
            joined = torch.cat((attended, inner), dim=1)
            x = x + joined @ block.second.weight.float().T + block.second.bias.float()
        return x

    def attended(self, qkv: Tensor, pool: Tensor, context: int, places: Places) -> Tensor:
        q, k, v = qkv.view(1, 3, HEADS, HEAD_DIM).unbind(1)
        keys, values = self.row.cached(pool, context)
        if places.slots_T[0] >= 0:
            keys[-1], values[-1] = rope(k, places.rotation())[0], v[0]
        scores = torch.einsum("hd,phd->hp", rope(q, places.rotation())[0], keys) * HEAD_DIM**-0.5
        return torch.einsum("hp,phd->hd", scores.softmax(-1), values).reshape(1, -1)


def error(found: Tensor, expected: Tensor) -> float:
    return float((found.float() - expected.float()).norm() / expected.float().norm())


@pytest.fixture
def decoder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Decoder]:
    emulate(monkeypatch, PROGRAMS, getattr(request, "param", ("", "")))
    torch.manual_seed(0)
    blocks = tuple(random_block() for _ in range(LAYERS))
    pages = 320 // PAGE
    pool = randn(LAYERS, 2, pages, PAGE, HEADS, HEAD_DIM)
    row = PagedRow.of(pages, PAGE, HEAD_DIM // 2)
    yield Decoder(blocks, pool, row, hopper.LayerStack(ParallelLayers(blocks, EPSILON)))
    hopper._shared.cache_clear()


def test_steps_are_as_in_plain_torch(decoder: Decoder) -> None:
    for context in (1, 33, 290):
        x_1C, before = randn(1, DIM, scale=2.0) + 1, decoder.pool.clone()
        places = decoder.row.places(context)
        found, expected = decoder.run(x_1C, context, places), decoder.expected(x_1C, context, places)
        assert error(found, expected) < ROUNDING
        # only the new position has changed, and the same step again makes the same row
        changed = (decoder.pool != before).flatten(2, 3).any(-1).any(-1).any(0).any(0)
        assert changed.nonzero().flatten().tolist() == [int(places.slots_T)]
        assert torch.equal(decoder.run(x_1C, context, places), found)


FAULTS = {
    "no wait for copies": ("wait_for(own.turns.ring.full(), own.turns.ring.turn);", ""),
    "no wait for the row": ("if (!is_of(words[i], number)) missing", "if (false) missing"),
    "the row of another layer": ("step.out, number - 1", "step.out, number - 2"),
}


@pytest.mark.parametrize("decoder", FAULTS.values(), ids=FAULTS, indirect=True)
def test_a_missing_wait_shows(decoder: Decoder) -> None:
    x_1C, places = randn(1, DIM), decoder.row.places(290)
    try:
        found = decoder.run(x_1C, 290, places)
    except TimeoutError:
        return
    assert not error(found, decoder.expected(x_1C, 290, places)) < ROUNDING


def test_a_step_in_one_launch_is_the_merged_one(decoder: Decoder) -> None:
    x_1C, kv = randn(1, DIM), decoder.view(40)
    found = decode_text.in_one_launch(x_1C, kv, decoder.stack, decoder.row.table_SF2)
    assert found is not None
    assert error(found, decode_text.step(x_1C, kv, decoder.blocks, decoder.row.table_SF2)) < 2 * ROUNDING
    assert decode_text.in_one_launch(x_1C.expand(2, -1), kv, decoder.stack, decoder.row.table_SF2) is None


def test_weights_that_are_stored_otherwise_are_left_to_others(decoder: Decoder) -> None:
    first, second = decoder.blocks
    assert ParallelLayers(decoder.blocks, EPSILON).are_stored_well()
    for other in (
        replace(second, ln=LayerNorm(second.ln.weight.float(), second.ln.bias)),
        replace(second, first=Linear(second.first.weight, second.first.bias.float())),
        replace(second, second=Linear(second.second.weight.T.contiguous().T, second.second.bias)),
    ):
        assert not ParallelLayers((first, other), EPSILON).are_stored_well()


def test_a_width_that_the_norm_cannot_share_out_is_left_to_others(decoder: Decoder) -> None:
    sizes = ParallelLayers(decoder.blocks, EPSILON).sizes(decoder.pool, HEAD_DIM // 4, PAGE)
    assert sizes.fits()
    assert not replace(sizes, dim=DIM + 512).fits()
