"""A decoder's layers in one launch, against plain torch in float32: the kernel's source, compiled for the CPU.

Warps run in a random order there, and copies arrive late; what has not arrived is NaN.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from stoop_worker.engine.tensors import KVView
from stoop_worker.kernels.block_fp8.reference import wide
from stoop_worker.kernels.hopper import Unusable
from stoop_worker.kernels.layer_stack import hopper
from stoop_worker.kernels.layer_stack.pre_norm import PreNormLayers
from stoop_worker.kernels.layer_stack.sizes import Sizes
from stoop_worker.kernels.rotate_write import Places
from stoop_worker.models.decoder import decode_text
from stoop_worker.models.decoder.weights import Block, DecoderWeights
from tests.support.emulated_stack import EmulatedKernel, emulate, has_gcc
from tests.support.paged_row import PagedRow
from tests.support.random_blocks import DecoderSizes, randn, random_block

pytestmark = pytest.mark.skipif(not has_gcc(), reason="g++ compiles the kernel for the CPU")

PAGE, LAYERS, EPSILON = 16, 2, 1e-6
ROUNDING = 8e-3
"""The error of bfloat16's roundings, as a share of a row's norm."""


SHAPES = {
    "heads of 64": DecoderSizes(512, 1024, 8, 2, 64, normed=False),
    "normed heads of 128": DecoderSizes(512, 1600, 4, 2, 128, normed=True),
    "float8": DecoderSizes(512, 1024, 8, 2, 128, normed=True, float8=True),
}
PROGRAMS = {"heads of 64": 5, "normed heads of 128": 7, "float8": 7}
FEWEST_SLOTS = 8


def normed(x: Tensor, weight: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPSILON) * weight.float()


@dataclass
class Decoder:
    shape: DecoderSizes
    blocks: tuple[Block, ...]
    pool: Tensor
    row: PagedRow
    stack: hopper.LayerStack

    def step(self, x_1C: Tensor, context: int, *, stores: bool = True) -> tuple[Tensor, Tensor]:
        """Run both; return the kernel's row, and the expected row with the new keys and values of the layers."""
        places = self.row.places(context, stores=stores)
        return self.run(x_1C, context, places), self.expected(x_1C, context, places)

    def run(self, x_1C: Tensor, context: int, places: Places) -> Tensor:
        assert self.stack.takes(x_1C, places, self.pool, self.row.layout(context))
        return self.stack.run(x_1C, places, self.pool, self.row.layout(context))

    def counters(self, places: Places) -> Tensor:
        return hopper._shared(self.stack._sizes(places, self.pool, self.row.layout(1)), self.pool.device)[-1]

    def expected(self, x_1C: Tensor, context: int, places: Places) -> Tensor:
        x = x_1C.float()
        for layer, block in enumerate(self.blocks):
            x = x + self.attended(x, self.pool[layer], block, context, places) @ wide(block.out, torch.float32).T
            gates, ups = (normed(x, block.mlp_norm) @ wide(block.gate_up, torch.float32).T).chunk(2, 1)
            x = x + (gates * gates.sigmoid() * ups) @ wide(block.down, torch.float32).T
        return x

    def attended(self, x: Tensor, pool: Tensor, block: Block, context: int, places: Places) -> Tensor:
        heads, key_heads, width = self.shape.heads, self.shape.key_heads, self.shape.head_dim
        made = (normed(x, block.norm) @ wide(block.qkv, torch.float32).T).view(-1, width)
        q, k, v = torch.split(made, [heads, key_heads, key_heads])
        if block.head_norms is not None:
            q, k = normed(q, block.head_norms.q_D), normed(k, block.head_norms.k_D)
        cos, sin = self.row.table_SF2[places.positions[0]].unbind(-1)

        def rotated(rows: Tensor) -> Tensor:
            a, b = rows.chunk(2, 1)
            return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(1)

        keys, values = self.row.cached(pool, context)
        if places.slots_T[0] >= 0:
            keys[-1], values[-1] = rotated(k), v
        scores = torch.einsum("kgd,pkd->kgp", rotated(q).view(key_heads, -1, width), keys) * width**-0.5
        return torch.einsum("kgp,pkd->kgd", scores.softmax(-1), values).reshape(1, -1)

    def chosen(self, x_1C: Tensor, context: int, stack: hopper.LayerStack | None) -> Tensor:
        """Run the decoder's step, which chooses the kernels."""
        places = self.row.places(context)
        kv = KVView(places.positions, places.slots_T, self.row.layout(context), self.pool, lambda: None)
        none = torch.empty(0)
        return decode_text.step(x_1C, kv, places, DecoderWeights(none, self.blocks, none, none, EPSILON), stack)


def error(found: Tensor, expected: Tensor) -> float:
    return float((found.float() - expected.float()).norm() / expected.float().norm())


@pytest.fixture
def edit(request: pytest.FixtureRequest) -> tuple[str, str]:
    return getattr(request, "param", ("", ""))


@pytest.fixture
def decoder(
    request: pytest.FixtureRequest, edit: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Decoder]:
    name = getattr(request, "param", "heads of 64")
    name, _, slots = name.partition(", slots: ")
    shape, programs = SHAPES[name], PROGRAMS[name]
    emulate(monkeypatch, programs, edit, slots=int(slots) if slots else None)
    torch.manual_seed(0)
    blocks = tuple(random_block(shape, epsilon=EPSILON) for _ in range(LAYERS))
    pages = 320 // PAGE
    pool = randn(LAYERS, 2, pages, PAGE, shape.key_heads, shape.head_dim)
    row = PagedRow.of(pages, PAGE, shape.head_dim, 5e5)
    yield Decoder(shape, blocks, pool, row, hopper.LayerStack(PreNormLayers(blocks, EPSILON)))
    hopper._shared.cache_clear()


@pytest.mark.parametrize("decoder", [*SHAPES, *(f"{name}, slots: {FEWEST_SLOTS}" for name in SHAPES)], indirect=True)
def test_steps_are_as_in_plain_torch(decoder: Decoder) -> None:
    for context in (1, 33, 290):
        x_1C, before = randn(1, decoder.shape.dim), decoder.pool.clone()
        found, expected = decoder.step(x_1C, context)
        assert error(found, expected) < ROUNDING
        # only the new position has changed, and the same step again makes the same row
        slot = int(decoder.row.places(context).slots_T)
        changed = (decoder.pool != before).flatten(2, 3).any(-1).any(-1).any(0).any(0)
        assert changed.nonzero().flatten().tolist() == [slot]
        assert torch.equal(decoder.run(x_1C, context, decoder.row.places(context)), found)


MANY = [-4, 0x7FC01000]
"""Layers that earlier launches have run: the number soon begins again, or its upper half is no number as bfloat16."""


@pytest.mark.parametrize("decoder", SHAPES, indirect=True)
def test_steps_do_not_depend_on_the_number_of_earlier_ones(decoder: Decoder) -> None:
    x_1C, places = randn(1, decoder.shape.dim), decoder.row.places(40)
    found = decoder.run(x_1C, 40, places)
    for before in MANY:
        decoder.counters(places)[0] = before
        for _ in range(3):
            assert torch.equal(decoder.run(x_1C, 40, places), found)


def test_the_new_key_and_value_are_stored(decoder: Decoder) -> None:
    x_1C, context = randn(1, decoder.shape.dim), 40
    found, _ = decoder.step(x_1C, context)
    # without a slot the step reads them from the pool
    assert error(decoder.run(x_1C, context, decoder.row.places(context, stores=False)), found) < 1e-6


def test_a_row_without_a_sequence_has_a_finite_answer(decoder: Decoder) -> None:
    before = decoder.pool.clone()
    assert decoder.run(randn(1, decoder.shape.dim), 0, decoder.row.places(0, stores=False)).isfinite().all()
    assert torch.equal(decoder.pool, before)


FAULTS = {
    "no wait for copies": ("wait_for(ring.full(), ring.turn);", ""),
    "no wait for a slot": ("own.ring.empty(), own.ring.turn ^ 1", "own.ring.empty(), own.ring.turn"),
    "no wait for the row": ("if (!is_of(words[i], number)) missing", "if (false) missing"),
    "no wait for the heads": ("is_of(words[i][0], number) && is_of(words[i][1], number)", "true"),
    "no wait for the ranges": ("are_of(values, number) && are_of(softmax, number)", "true"),
    "the number of another layer": ("number, nullptr, nullptr, 0", "number - 1, nullptr, nullptr, 0"),
}


@pytest.mark.parametrize("edit", FAULTS.values(), ids=FAULTS, indirect=True)
def test_a_missing_wait_shows(decoder: Decoder) -> None:
    try:
        found, expected = decoder.step(randn(1, decoder.shape.dim), 290)
    except TimeoutError:
        return
    assert not error(found, expected) < ROUNDING


STUCK = "number = before + layer + 1", "number = before + layer + 1 + (blockIdx.x == 0)"


@pytest.mark.parametrize("edit", [STUCK], ids=["stuck"], indirect=True)
def test_a_wait_for_what_never_comes_ends(decoder: Decoder) -> None:
    with pytest.raises(TimeoutError):
        decoder.run(randn(1, decoder.shape.dim), 40, decoder.row.places(40))


def test_other_steps_are_not_taken(decoder: Decoder) -> None:
    x_1C, places, layout = randn(1, decoder.shape.dim), decoder.row.places(40), decoder.row.layout(40)
    axes = replace(places, axis_F=torch.zeros(decoder.shape.head_dim // 2, dtype=torch.int32))
    assert decoder.stack.takes(x_1C, places, decoder.pool, layout)
    assert not decoder.stack.takes(x_1C.expand(2, -1), places, decoder.pool, layout)
    assert not decoder.stack.takes(x_1C, places, decoder.pool.to(torch.float8_e4m3fn), layout)
    assert not decoder.stack.takes(x_1C, axes, decoder.pool, layout)


def test_a_decoder_takes_the_launch_of_all_layers(decoder: Decoder) -> None:
    x_1C, context = randn(1, decoder.shape.dim), 40
    found = decoder.chosen(x_1C, context, decoder.stack)
    assert torch.equal(found, decoder.run(x_1C, context, decoder.row.places(context)))
    assert error(found, decoder.chosen(x_1C, context, None)) < 2 * ROUNDING


def test_a_kernel_that_does_not_compile_is_replaced(decoder: Decoder, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(sizes: Sizes, device: torch.device) -> EmulatedKernel:
        raise Unusable("layer_stack")

    monkeypatch.setattr(hopper, "_compiled", fail)
    x_1C = randn(1, decoder.shape.dim)
    assert torch.equal(decoder.chosen(x_1C, 40, decoder.stack), decoder.chosen(x_1C, 40, None))


@pytest.mark.parametrize(
    "change",
    [
        {"head_dim": 96},
        {"key_heads": 133},
        {"heads": 72},
        {"inner": 9700},
        {"dim": 2560 + 16},
        {"inner": 2**17},
        {"dim": 2048, "inner": 2**15},
    ],
    ids=str,
)
def test_sizes_that_the_kernel_cannot_hold_are_left_to_others(change: dict[str, int]) -> None:
    sizes = Sizes(
        dim=2560,
        inner=9728,
        heads=32,
        key_heads=8,
        head_dim=128,
        frequencies=64,
        normed=True,
        float8=False,
        page=PAGE,
        programs=132,
        layers=36,
    )
    assert sizes.fits()
    assert sizes.shared_bytes <= 227 * 1024
    assert not replace(sizes, **change).fits()


@pytest.mark.parametrize("decoder", ["heads of 64", "float8"], indirect=True)
def test_weights_that_are_stored_otherwise_are_left_to_others(decoder: Decoder) -> None:
    first, second = decoder.blocks
    assert PreNormLayers(decoder.blocks, EPSILON).are_stored_well()
    for other in (
        replace(second, norm=second.norm.float()),
        replace(second, qkv=wide(second.qkv, torch.float32)),
        replace(second, down=wide(second.down, torch.bfloat16).T),
    ):
        assert not PreNormLayers((first, other), EPSILON).are_stored_well()
