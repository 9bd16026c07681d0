"""A decode step whose kernels start early against one whose kernels do not, to the bit: a race would show.

Moondream's sizes, with experts and without, with adapters and without, a few layers. The lengths of a row grow from
input to input: so what it reads of the pool is the same, whichever of the inputs ran before.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from stoop_worker.engine.tensors import KVView
from stoop_worker.kernels import early, low_rank
from stoop_worker.kernels.backend import launches_early
from stoop_worker.kernels.hopper import is_hopper
from stoop_worker.kernels.layer_stack import LayerStack
from stoop_worker.kernels.moe import ExpertAdapter, ExpertLinear, corrections
from stoop_worker.kernels.moe import kernel as moe_kernel
from stoop_worker.kernels.paged_attention import PagedLayout
from stoop_worker.kernels.rotate_write import rotation_table
from stoop_worker.kernels.skinny_linear import hopper as few_rows
from stoop_worker.models.blocks.layers import LayerNorm, Linear
from stoop_worker.models.moondream import decode_text as merged_text
from stoop_worker.models.moondream.config_parts import TauConfig
from stoop_worker.models.moondream.decode_lora import NO_ADAPTERS, RowAdapters
from stoop_worker.models.moondream.decode_text import MergedBlock
from stoop_worker.models.moondream.lora import Adapter, BlockAdapters
from stoop_worker.models.moondream.weights import MoE, Tau
from tests.support.launches import differing_replays, launches_of

WIDTH, INNER, HEADS, HEAD_DIM, PAGE, LAYERS = 2048, 8192, 32, 64, 16, 3
EXPERTS, CHOSEN, EXPERT_INNER = 64, 8, 1024
ROWS = [1, 2, 16, 17, 64, 65]
INPUTS, ROUNDS, LONGEST = 5, 40, 960
ADAPTERS, RANKS = 3, (16, 2)  # ranks of plain layers and of experts
BESIDE = {"in line": 0, "beside": 64}  # up to how many rows attend beside their experts


class Input(NamedTuple):
    """The inputs that change from step to step: rows, their positions and slots, the lengths after them."""

    x_BC: Tensor
    positions_B: Tensor
    slots_B: Tensor
    contexts_B: Tensor


@dataclass(frozen=True)
class Chain:
    """A step at fixed places, and inputs to be copied there."""

    kv: KVView
    rotations_SF2: Tensor
    place: Input
    inputs: list[Input]
    blocks: tuple[MergedBlock, ...]
    most_beside: int
    adapters: RowAdapters
    stack: LayerStack | None = None

    def feed(self, number: int) -> None:
        for place, value in zip(self.place, self.inputs[number], strict=True):
            place.copy_(value)

    def step(self) -> Tensor:
        if self.stack is not None:
            found = merged_text.in_one_launch(self.place.x_BC, self.kv, self.stack, self.rotations_SF2)
            assert found is not None
            return found
        return merged_text.step(
            self.place.x_BC,
            self.kv,
            self.blocks,
            self.rotations_SF2,
            adapters=self.adapters,
            most_beside=self.most_beside,
        )


def randn(*shape: int, scale: float = 1.0) -> Tensor:
    return (scale * torch.randn(*shape, device="cuda")).bfloat16()


@pytest.fixture(scope="module", params=["MLP", "experts"])
def blocks(request: pytest.FixtureRequest) -> tuple[MergedBlock, ...]:
    torch.manual_seed(0)
    if request.param == "experts":
        return tuple(with_experts() for _ in range(LAYERS))
    return tuple(
        MergedBlock(
            LayerNorm(1 + randn(WIDTH, scale=0.1), randn(WIDTH, scale=0.1)),
            Linear(randn(3 * WIDTH + INNER, WIDTH, scale=WIDTH**-0.5), randn(3 * WIDTH + INNER, scale=0.1)),
            Linear(randn(WIDTH, WIDTH + INNER, scale=(WIDTH + INNER) ** -0.5), randn(WIDTH, scale=0.1)),
        )
        for _ in range(LAYERS)
    )


def with_experts() -> MergedBlock:
    """Return a block of Moondream 3's kind."""
    up = ExpertLinear(randn(EXPERTS, 2 * EXPERT_INNER, WIDTH, scale=WIDTH**-0.5))
    down = ExpertLinear(randn(EXPERTS, WIDTH, EXPERT_INNER, scale=EXPERT_INNER**-0.5))
    router = Linear(randn(EXPERTS, WIDTH, scale=WIDTH**-0.5), randn(EXPERTS))
    made = 3 * WIDTH + 2 * EXPERTS  # the second half of the last rows is not read
    return MergedBlock(
        LayerNorm(1 + randn(WIDTH, scale=0.1), randn(WIDTH, scale=0.1)),
        Linear(randn(made, WIDTH, scale=WIDTH**-0.5), randn(made)),
        Linear(randn(WIDTH, WIDTH, scale=WIDTH**-0.5), randn(WIDTH, scale=0.1)),
        Tau(randn(2 * HEADS, 3 * WIDTH, scale=0.01), randn(HEADS), TauConfig()),
        MoE(router, up, down, CHOSEN),
    )


def adapters_of(rows: int, blocks: tuple[MergedBlock, ...]) -> RowAdapters:
    """Return the corrections of every layer by a few adapters, and by none in every fourth row."""
    return RowAdapters(
        tuple(map(corrections_of, blocks)), torch.arange(1, rows + 1, device="cuda") % (ADAPTERS + 1), RANKS
    )


def corrections_of(block: MergedBlock) -> BlockAdapters:
    def pair(width: int, out: int, *experts: int) -> tuple[Tensor, Tensor]:
        rank = RANKS[bool(experts)]
        columns = rank * (ADAPTERS + 1)
        return randn(*experts, columns, width, scale=width**-0.5), randn(*experts, columns, out, scale=rank**-0.5)

    linears = {"qkv": Adapter(*pair(WIDTH, 3 * WIDTH)), "proj": Adapter(*pair(WIDTH, WIDTH))}
    if block.experts is None:
        linears |= {"fc1": Adapter(*pair(WIDTH, INNER)), "fc2": Adapter(*pair(INNER, WIDTH))}
        return BlockAdapters(linears)
    up, down = pair(WIDTH, 2 * EXPERT_INNER, EXPERTS), pair(EXPERT_INNER, WIDTH, EXPERTS)
    return BlockAdapters(linears, ExpertAdapter(*up, *down, rank=RANKS[1]))


def chain_of(
    rows: int, blocks: tuple[MergedBlock, ...], most_beside: int, adapters: RowAdapters = NO_ADAPTERS
) -> Chain:
    torch.manual_seed(rows)
    pages = LONGEST // PAGE
    table_BP = torch.randperm(rows * pages, device="cuda").int().view(rows, pages)
    shortest_B = torch.randint(1, LONGEST // 2, (rows,), device="cuda")
    inputs = []
    for number in range(INPUTS):
        positions_B = shortest_B + number * (LONGEST // 2 // INPUTS)
        pages_B = table_BP.gather(1, (positions_B // PAGE)[:, None])[:, 0].long()
        slots_B = pages_B * PAGE + positions_B % PAGE
        inputs.append(Input(randn(rows, WIDTH), positions_B, slots_B, (positions_B + 1).int()))
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
    pool = torch.randn(LAYERS, 2, rows * pages, PAGE, HEADS, HEAD_DIM, device="cuda").bfloat16()
    table_SF2 = rotation_table(LONGEST, HEAD_DIM // 2, 10000.0, torch.device("cuda"))
    kv = KVView(place.positions_B, place.slots_B, layout, pool, lambda: None)
    return Chain(kv, table_SF2, place, inputs, blocks, most_beside, adapters)


def one_after_another(chain: Chain) -> list[Tensor]:
    """Return each input's result where no kernel starts early."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(early, "launches_early", lambda device: False)
        found = []
        for number in range(INPUTS):
            chain.feed(number)
            found.append(chain.step().clone())
    return found


def in_turn() -> Iterator[int]:
    return (3 * turn % INPUTS for turn in range(ROUNDS))


@pytest.fixture(params=ROWS)
def rows(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture(params=["plain", "adapted"])
def adapters(request: pytest.FixtureRequest, rows: int, blocks: tuple[MergedBlock, ...]) -> RowAdapters:
    return NO_ADAPTERS if request.param == "plain" else adapters_of(rows, blocks)


@pytest.fixture(params=BESIDE)
def chain(request: pytest.FixtureRequest, rows: int, blocks: tuple[MergedBlock, ...], adapters: RowAdapters) -> Chain:
    if BESIDE[request.param] and blocks[0].experts is None and not adapters.blocks:
        pytest.skip("nothing runs beside attention")
    return chain_of(rows, blocks, BESIDE[request.param], adapters)


def test_kernels_start_early_from_hopper_on() -> None:
    assert launches_early(torch.device("cuda")) == (torch.cuda.get_device_capability() >= (9, 0))


def test_a_captured_step_is_the_same_to_the_bit(chain: Chain) -> None:
    expected = one_after_another(chain)
    chain.step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = chain.step()
    differing = torch.zeros((), dtype=torch.int64, device="cuda")
    for number in in_turn():
        chain.feed(number)
        graph.replay()
        graph.replay()  # right behind the first
        differing += (found != expected[number]).any()
    assert differing == 0


def test_a_step_that_is_not_captured_is_the_same_to_the_bit(chain: Chain) -> None:
    expected = one_after_another(chain)
    differing = torch.zeros((), dtype=torch.int64, device="cuda")
    for number in in_turn():
        chain.feed(number)
        differing += (chain.step() != expected[number]).any()
    assert differing == 0


def test_a_step_is_as_exact_with_the_library_s_products(rows: int, blocks: tuple[MergedBlock, ...]) -> None:
    chain = chain_of(rows, blocks, BESIDE["beside"])
    found = chain.step().clone()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(few_rows, "takes", lambda *_: False)
        expected = chain.step()
    assert (found - expected).double().norm() < 0.02 * expected.double().norm()


def test_adapters_correct_as_their_references(rows: int, blocks: tuple[MergedBlock, ...]) -> None:
    adapters = adapters_of(rows, blocks)
    chain = chain_of(rows, blocks, BESIDE["beside"], adapters)
    found, without = chain.step().clone(), chain_of(rows, blocks, 0).step()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(low_rank, "uses_kernel", lambda *_: False)
        patch.setattr(corrections, "_MOST_OWN", 0)  # by dots over all adapters' columns
        expected = chain.step()
    numbers_B = adapters.numbers_B
    assert numbers_B is not None
    errors_B = (found - expected).double().norm(dim=1) / (expected - without).double().norm(dim=1)
    assert errors_B[numbers_B > 0].quantile(0.8) < 0.05  # where two experts' logits nearly tie, rounding picks another
    assert (found - without)[numbers_B == 0].abs().sum() < 0.05 * without.abs().sum()


def test_few_rows_choose_the_same_experts_without_a_sort(rows: int, blocks: tuple[MergedBlock, ...]) -> None:
    if blocks[0].experts is None:
        pytest.skip("there are no experts")
    found, plain = chain_of(rows, blocks, BESIDE["beside"]), chain_of(rows, blocks, 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(moe_kernel.expert_outputs.__kwdefaults__, "most_unsorted", 0)
        expected = plain.step().clone()
    torch.testing.assert_close(found.step(), expected, rtol=0, atol=0.05)


@pytest.fixture
def stacked(blocks: tuple[MergedBlock, ...]) -> Chain:
    """A chain of one row whose layers are one launch."""
    if not is_hopper(torch.device("cuda")):
        pytest.skip("the kernel is for Hopper")
    if blocks[0].experts is not None:
        assert merged_text.stack_of(blocks) is None
        pytest.skip("experts have launches of their own")
    return replace(chain_of(1, blocks, 0), stack=merged_text.stack_of(blocks))


def test_all_layers_of_one_row_are_one_launch(stacked: Chain) -> None:
    for number in range(INPUTS):
        stacked.feed(number)
        expected, found = replace(stacked, stack=None).step().clone(), stacked.step()
        assert (found - expected).double().norm() < 0.01 * expected.double().norm()
    assert len(launches_of(stacked.step)) == 1


def test_one_launch_is_the_same_to_the_bit_in_thousands_of_steps(stacked: Chain) -> None:
    assert differing_replays(stacked.step, stacked.feed, range(INPUTS), 3000) == 0
