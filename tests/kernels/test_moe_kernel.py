"""The kernels for experts against their references; outputs that they do not write are NaN, and so are inputs that they
must not read.
"""

from collections.abc import Callable, Iterator
from dataclasses import fields, replace

import pytest
import torch
from torch import Tensor

from stoop_worker.kernels.moe import kernel, mixture, reference, route
from stoop_worker.kernels.moe.products import Cut, cuts_for
from stoop_worker.kernels.moe.routing import Order, sort_pairs
from stoop_worker.kernels.moe.tiles import sorted_pairs
from stoop_worker.kernels.moe.weights import ExpertAdapter, ExpertLinear, Routing
from stoop_worker.kernels.profiling import named_part
from tests.support.matrices import within

# the interpreter's dot takes no bfloat16
TOLERANCE = {torch.float32: 2e-5, torch.float16: 5e-3}
WIDTH, INNER, EXPERTS, CHOSEN = 48, 40, 6, 2
PAIRS = 16
CUTS = [Cut(16, 16, 16, 4, 2), Cut(16, 32, 64, 4, 2), Cut(32, 64, 32, 4, 2)]


@pytest.fixture(autouse=True)
def poisoned_outputs() -> Iterator[None]:
    """Fill what `torch.empty` returns with NaN, and integers with their largest value."""
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)
    assert torch.empty(8).isnan().all()
    yield
    torch.use_deterministic_algorithms(False)


def experts(dtype: torch.dtype) -> tuple[ExpertLinear, ExpertLinear]:
    up = torch.randn(EXPERTS, 2 * INNER, WIDTH) / WIDTH**0.5
    down = torch.randn(EXPERTS, WIDTH, INNER) / INNER**0.5
    return ExpertLinear(up.to(dtype)), ExpertLinear(down.to(dtype))


def in_float8(weights: ExpertLinear) -> ExpertLinear:
    scales = torch.rand(weights.weight_EOI.shape[:2]) + 0.5
    return ExpertLinear(weights.weight_EOI.to(torch.float8_e4m3fn), scales)


def exact(weights: ExpertLinear) -> ExpertLinear:
    values = weights.weight_EOI.double()
    return ExpertLinear(values if weights.scales_EO is None else values * weights.scales_EO[..., None].double())


def check(found: Tensor, x: Tensor, routing: Routing, up: ExpertLinear, down: ExpertLinear) -> None:
    precise = Routing(routing.experts_TK, routing.weights_TK.double())
    expected = reference.mixture(x.double(), precise, exact(up), exact(down))
    assert (found.dtype, found.shape) == (x.dtype, x.shape)
    close = TOLERANCE[x.dtype]
    torch.testing.assert_close(found.double(), expected, rtol=close, atol=close)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("count", "chosen"), [(64, 8), (4, 2), (6, 6), (1, 1), (50, 5)])
def test_it_chooses_as_the_reference(count: int, chosen: int, dtype: torch.dtype) -> None:
    logits = within(5, count, dtype, margin=4)
    logits[1] = 3.0
    logits[2, (count + 1) // 2 :] = float("-inf")
    found, expected = kernel.route(logits, chosen), reference.route(logits, chosen)
    assert torch.equal(found.experts_TK, expected.experts_TK)
    torch.testing.assert_close(found.weights_TK, expected.weights_TK, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


def test_a_nan_logit_is_never_used_as_an_index() -> None:
    found = kernel.route(torch.full((2, 6), torch.nan), 3)
    assert found.experts_TK.tolist() == [[0, 1, 2]] * 2


@pytest.mark.parametrize("tokens", [1, 7, 600])
def test_pairs_are_sorted_by_expert_and_keep_their_order(tokens: int) -> None:
    chosen = torch.stack([torch.randperm(EXPERTS)[:CHOSEN] for _ in range(tokens)]).int()
    chosen[chosen == 4] = 3  # an expert that no token chose
    order = sort_pairs(chosen, EXPERTS)
    values, places = chosen.flatten().sort(stable=True)
    assert torch.equal(order.pairs_P.long(), places)
    assert torch.equal(order.starts_E1.long(), torch.searchsorted(values, torch.arange(EXPERTS + 1)))


@pytest.mark.parametrize(
    ("tokens", "cut", "dtype"),
    [
        (tokens, cut, list(TOLERANCE)[(row + column) % 2])
        for row, tokens in enumerate([1, 5, 41])
        for column, cut in enumerate(CUTS)
    ],
    ids=str,
)
def test_a_mixture_agrees_with_the_reference(tokens: int, cut: Cut, dtype: torch.dtype) -> None:
    x, (up, down) = within(tokens, WIDTH, dtype, margin=4), experts(dtype)
    routing = kernel.route(within(tokens, EXPERTS, dtype, margin=4), CHOSEN)
    check(kernel.mixture(x, routing, up, down, cut=cut), x, routing, up, down)


@pytest.mark.parametrize("most_unsorted", [0, 16])
@pytest.mark.parametrize("tokens", [1, 2, 8])
def test_few_tokens_find_their_experts_with_and_without_a_sort(tokens: int, most_unsorted: int) -> None:
    x, (up, down) = within(tokens, WIDTH, torch.float32, margin=4), experts(torch.float32)
    routing = kernel.route(within(tokens, EXPERTS, torch.float32, margin=4), CHOSEN)
    found = kernel.expert_outputs(x, routing, up, down, most_unsorted=most_unsorted)
    expected = reference.expert_outputs(x, routing, up, down)
    torch.testing.assert_close(found.found_PC, expected.found_PC, rtol=2e-5, atol=2e-5)


def adapters_of(count: int, rank: int, tokens: int) -> ExpertAdapter:
    """Return `count` adapters in columns of their own behind those of number 0, which must not be read by any token."""
    columns = rank * (count + 1)
    a = torch.randn(EXPERTS, columns, WIDTH) / WIDTH**0.5, torch.randn(EXPERTS, columns, 2 * INNER)
    b = torch.randn(EXPERTS, columns, INNER) / INNER**0.5, torch.randn(EXPERTS, columns, WIDTH)
    return ExpertAdapter(*a, *b, rank=rank, numbers_T=torch.arange(tokens) % (count + 1))


def in_doubles(adapter: ExpertAdapter) -> ExpertAdapter:
    wide = {
        each.name: value.double()
        for each in fields(adapter)
        if (value := getattr(adapter, each.name)) is not adapter.numbers_T and isinstance(value, Tensor)
    }
    return replace(adapter, **wide)


# one token's, few tokens' and many tokens'; and more columns than few tokens read by themselves
@pytest.mark.parametrize(("tokens", "count", "rank"), [(1, 2, 2), (5, 2, 3), (17, 3, 2), (5, 4, 17), (70, 2, 2)])
def test_adapters_correct_both_products(tokens: int, count: int, rank: int) -> None:
    x, (up, down) = within(tokens, WIDTH, torch.float32, margin=4), experts(torch.float32)
    routing = kernel.route(within(tokens, EXPERTS, torch.float32, margin=4), CHOSEN)
    adapter = adapters_of(count, rank, tokens)
    found = kernel.mixture(x, routing, up, down, adapter, cut=CUTS[1])
    precise = Routing(routing.experts_TK, routing.weights_TK.double())
    expected = reference.mixture(x.double(), precise, exact(up), exact(down), in_doubles(adapter))
    torch.testing.assert_close(found.double(), expected, rtol=5e-5, atol=5e-5)


@pytest.mark.parametrize("tokens", [1, 20])
def test_float8_weights_are_scaled_a_row(tokens: int) -> None:
    x, (up, down) = within(tokens, WIDTH, torch.float16, margin=4), map(in_float8, experts(torch.float32))
    routing = kernel.route(within(tokens, EXPERTS, torch.float16, margin=4), CHOSEN)
    check(kernel.mixture(x, routing, up, down, cut=CUTS[0]), x, routing, up, down)


def test_many_rows_are_quantised_for_float8_weights() -> None:
    x, (up, down) = within(60, WIDTH, torch.float16, margin=4), map(in_float8, experts(torch.float32))
    routing = kernel.route(within(60, EXPERTS, torch.float16, margin=4), CHOSEN)
    found = kernel.mixture(x, routing, up, down, cut=CUTS[0]).double()
    precise = Routing(routing.experts_TK, routing.weights_TK.double())
    expected = reference.mixture(x.double(), precise, exact(up), exact(down))
    error = float((found - expected).norm() / expected.norm())
    assert 1e-3 < error < 5e-2, "three bits of a mantissa, and a scale a row"


def test_all_tokens_may_choose_one_expert() -> None:
    x, (up, down) = within(40, WIDTH, torch.float32, margin=4), experts(torch.float32)
    routing = Routing(torch.full((40, 1), 5, dtype=torch.int32), torch.ones(40, 1))
    check(kernel.mixture(x, routing, up, down, cut=CUTS[0]), x, routing, up, down)


def test_no_tokens_launch_no_kernel() -> None:
    routing = kernel.route(torch.zeros(0, EXPERTS), CHOSEN)
    assert kernel.mixture(torch.zeros(0, WIDTH), routing, *experts(torch.float32)).shape == (0, WIDTH)


@pytest.mark.parametrize(("tokens", "pairs"), [(1, 16), (64, 16), (256, 64), (3000, 128)])
def test_few_tokens_take_small_tiles_and_many_take_large_ones(tokens: int, pairs: int) -> None:
    cuts = cuts_for(8 * tokens, 64)
    assert cuts.up.pairs == cuts.down.pairs == pairs


@pytest.mark.parametrize("counts", [[1] * 64, [16] * 64, [17] * 64, [0] * 63 + [1000], [1000, 0, 1]])
def test_the_grid_has_room_for_every_split_of_the_pairs(counts: list[int]) -> None:
    needed = sum(-(-count // PAIRS) for count in counts)
    order = Order(torch.empty(sum(counts), dtype=torch.int32), torch.empty(0), 1)
    assert needed <= sorted_pairs(order, order.pairs_P).most(PAIRS, len(counts))


def traced(work: Callable[[], object]) -> list[str]:
    """Return the names of the parts of the work, in the order in which they begin."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        work()
    named = [event for event in profiler.events() if event.name.startswith("stoop.")]
    return [event.name for event in sorted(named, key=lambda event: event.time_range.start)]


def test_a_trace_names_each_launch_of_the_experts() -> None:
    up, down = experts(torch.float32)
    x, logits = torch.randn(3, WIDTH), torch.randn(3, EXPERTS)
    chosen = reference.route(logits, CHOSEN)
    launches = ["stoop.experts.up", "stoop.experts.down"]
    assert traced(lambda: kernel.mixture(x, chosen, up, down)) == [*launches, "stoop.experts.sum"]
    sorting = ["stoop.experts.sort", *launches]
    assert traced(lambda: kernel.expert_outputs(x, chosen, up, down, most_unsorted=0)) == sorting
    whole = ["stoop.experts.route", "stoop.experts"]
    assert traced(lambda: mixture(x, route(logits, CHOSEN), up, down)) == whole


def test_parts_have_no_names_while_nothing_is_traced() -> None:
    assert named_part("stoop.one") is named_part("stoop.other"), "no range is made"
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        assert isinstance(named_part("stoop.one"), torch.profiler.record_function)
