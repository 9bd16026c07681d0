"""A decoder's step in fewer launches: as the plain one computes, and as without kernels that start early.

The sizes of Llama 3.2 1B and of Qwen3-4B, a few layers. The lengths of a row grow from input to input, so it reads the
same of the pool whichever of the inputs ran before.
"""

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from stoop_worker.engine.tensors import KVView
from stoop_worker.kernels import early
from stoop_worker.kernels.hopper import CudaKernel, is_hopper
from stoop_worker.kernels.layer_stack import LayerStack, stack_of
from stoop_worker.kernels.paged_attention import PagedLayout
from stoop_worker.kernels.rotate_write import Places, rotation_table
from stoop_worker.models.decoder import decode_text, text
from stoop_worker.models.decoder.weights import DecoderWeights
from tests.support import random_blocks
from tests.support.launches import differing_replays, launches_of
from tests.support.random_blocks import DecoderSizes, random_block

PAGE, LAYERS = 16, 3
ROWS = [1, 2, 4, 5, 16, 17, 64, 65]
INPUTS, ROUNDS, LONGEST = 5, 40, 960


SIZES = {
    "llama": DecoderSizes(2048, 8192, 32, 8, 64, False),
    "qwen3": DecoderSizes(2560, 9728, 32, 8, 128, True),
    "qwen3-fp8": DecoderSizes(2560, 9728, 32, 8, 128, True, float8=True),
}


class Input(NamedTuple):
    """The values that change from step to step: rows, their positions and slots, the lengths after them."""

    x_BC: Tensor
    positions_B: Tensor
    slots_B: Tensor
    contexts_B: Tensor


@dataclass(frozen=True)
class Chain:
    """A step at fixed places, and inputs to be copied there."""

    kv: KVView
    places: Places
    place: Input
    inputs: list[Input]
    weights: DecoderWeights
    stack: LayerStack | None

    def feed(self, number: int) -> None:
        for place, value in zip(self.place, self.inputs[number], strict=True):
            place.copy_(value)

    def step(self) -> Tensor:
        return decode_text.step(self.place.x_BC, self.kv, self.places, self.weights, self.stack)

    def plain(self) -> Tensor:
        return text.forward(self.place.x_BC, self.kv, self.places, self.weights)


randn = partial(random_blocks.randn, device="cuda")


@pytest.fixture(scope="module", params=SIZES)
def model(request: pytest.FixtureRequest) -> tuple[DecoderSizes, DecoderWeights]:
    torch.manual_seed(0)
    sizes = SIZES[request.param]
    none = randn(1, sizes.dim)
    blocks = tuple(random_block(sizes, epsilon=1e-6, device="cuda") for _ in range(LAYERS))
    return sizes, DecoderWeights(none, blocks, none[0], none, 1e-5)


CHAINS = {**{str(rows): (rows, False) for rows in ROWS}, "one-launch": (1, True)}
"""Rows, and whether all layers are one launch."""


@pytest.fixture(params=CHAINS.values(), ids=CHAINS)
def chain(request: pytest.FixtureRequest, model: tuple[DecoderSizes, DecoderWeights]) -> Chain:
    (rows, single), (sizes, weights) = request.param, model
    torch.manual_seed(rows)
    pages = LONGEST // PAGE
    table_BP = torch.randperm(rows * pages, device="cuda").int().view(rows, pages)
    shortest_B = torch.randint(1, LONGEST // 2, (rows,), device="cuda")
    inputs = []
    for number in range(INPUTS):
        positions_B = shortest_B + number * (LONGEST // 2 // INPUTS)
        pages_B = table_BP.gather(1, (positions_B // PAGE)[:, None])[:, 0].long()
        slots_B = pages_B * PAGE + positions_B % PAGE
        inputs.append(Input(randn(rows, sizes.dim), positions_B, slots_B, (positions_B + 1).int()))
    place = Input(*(value.clone() for value in inputs[0]))
    layout = PagedLayout(
        cu_seqlens_B1=torch.arange(rows + 1, dtype=torch.int32, device="cuda"),
        context_lens_B=place.contexts_B,
        page_table_BP=table_BP,
        prefix_lens_B=torch.zeros_like(place.contexts_B),
        cu_seqlens=(),
        context_lens=(),
        prefix_lens=(),
        page_size=PAGE,
    )
    pool = randn(LAYERS, 2, rows * pages, PAGE, sizes.key_heads, sizes.head_dim)
    table_SF2 = rotation_table(LONGEST, sizes.head_dim, 500000.0, torch.device("cuda"))
    kv = KVView(place.positions_B, place.slots_B, layout, pool, lambda: None)
    places = Places(place.positions_B, table_SF2, place.slots_B)
    stack = stack_of(weights.blocks, weights.epsilon) if single else None
    return Chain(kv, places, place, inputs, weights, stack)


def one_after_another(chain: Chain) -> list[Tensor]:
    """Return the outputs where no kernel starts early."""
    launch = CudaKernel.launch
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(early, "launches_early", lambda device: False)
        patch.setattr(CudaKernel, "launch", lambda kernel, *given, early=False: launch(kernel, *given))
        found = []
        for number in range(INPUTS):
            chain.feed(number)
            found.append(chain.step().clone())
    return found


def worst(found: Tensor, expected: Tensor) -> Tensor:
    """Return the largest error of a row, as a share of the row's norm."""
    return ((found.double() - expected.double()).norm(dim=1) / expected.double().norm(dim=1)).amax()


def test_a_step_is_the_plain_one(chain: Chain) -> None:
    for number in range(INPUTS):
        chain.feed(number)
        expected = chain.plain().clone()
        assert worst(chain.step(), expected) < 2e-2


# a sum's order may differ between the two, and so a few values' rounding; a race would put another step's values there
NEARLY = 2e-3


def test_a_captured_step_has_no_races(chain: Chain) -> None:
    expected = one_after_another(chain)
    chain.step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = chain.step()
    errors = []
    for turn in range(ROUNDS):
        number = 3 * turn % INPUTS
        chain.feed(number)
        graph.replay()
        graph.replay()  # right behind the first
        errors.append(worst(found, expected[number]))
    assert torch.stack(errors).amax() < NEARLY


def test_a_step_that_is_not_captured_has_no_races(chain: Chain) -> None:
    expected = one_after_another(chain)
    errors = []
    for turn in range(ROUNDS):
        number = 3 * turn % INPUTS
        chain.feed(number)
        errors.append(worst(chain.step(), expected[number]))
    assert torch.stack(errors).amax() < NEARLY


def test_the_step_of_one_row_runs_in_its_kernels(model: tuple[DecoderSizes, DecoderWeights]) -> None:
    from stoop_worker.kernels.row_linear import takes

    sizes, weights = model
    block = weights.blocks[0]
    for weight in (block.qkv, block.out, block.gate_up, block.down):
        assert takes(randn(1, weight.shape[1]), weight)
    assert decode_text.runs_well(torch.device("cuda"), torch.bfloat16, sizes.head_dim)


@pytest.fixture
def stacked(chain: Chain) -> Chain:
    if not is_hopper(torch.device("cuda")):
        pytest.skip("the kernel is for Hopper")
    return chain


@pytest.mark.parametrize("chain", [(1, True)], indirect=True)
def test_the_layers_of_one_row_are_one_launch(stacked: Chain) -> None:
    stacked.feed(0)
    assert len(launches_of(stacked.step)) == 1


@pytest.mark.parametrize("chain", [(1, True)], indirect=True)
def test_one_launch_is_the_same_to_the_bit_in_thousands_of_steps(stacked: Chain) -> None:
    assert differing_replays(stacked.step, stacked.feed, range(INPUTS), 3000) == 0
