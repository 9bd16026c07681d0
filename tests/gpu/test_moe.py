"""A mixture of experts and the temperature of attention as compiled kernels, at the sizes of Moondream 3."""

from dataclasses import fields, replace

import pytest
import torch
from torch import Tensor

from stoop_worker.kernels import moe, tau
from stoop_worker.kernels.moe import ExpertAdapter, ExpertLinear, Routing, reference
from stoop_worker.kernels.moe.routing import sort_pairs
from stoop_worker.kernels.rotate_write import Places, rotate_write, rotation_table
from stoop_worker.kernels.rotate_write import reference as plain_rotate
from stoop_worker.kernels.tau import Heat
from stoop_worker.kernels.tau import reference as plain_tau

WIDTH, INNER, EXPERTS, CHOSEN, HEADS = 2048, 1024, 64, 8, 32
TOKENS = [1, 2, 16, 64, 256, 750, 3000]
BOUND = {torch.bfloat16: 8e-3, torch.float16: 1e-3}


@pytest.fixture(autouse=True)
def drawn_alike() -> None:
    torch.manual_seed(0)


def randn(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.randn(*shape, device="cuda").to(dtype)


def experts(dtype: torch.dtype) -> tuple[ExpertLinear, ExpertLinear]:
    up = randn(EXPERTS, 2 * INNER, WIDTH, dtype=dtype) / WIDTH**0.5
    return ExpertLinear(up), ExpertLinear(randn(EXPERTS, WIDTH, INNER, dtype=dtype) / INNER**0.5)


def in_float8(weights: ExpertLinear) -> ExpertLinear:
    scales_EO = weights.weight_EOI.float().abs().amax(dim=-1) / 448
    return ExpertLinear((weights.weight_EOI / scales_EO[..., None]).to(torch.float8_e4m3fn), scales_EO)


def error(found: Tensor, expected: Tensor) -> float:
    return float((found.double() - expected.double()).norm() / expected.double().norm())


@pytest.mark.parametrize("tokens", TOKENS)
def test_routes_are_the_reference_s(tokens: int) -> None:
    logits = randn(tokens, EXPERTS)
    logits[0] = 1.0
    found, expected = moe.route(logits, CHOSEN), reference.route(logits, CHOSEN)
    assert torch.equal(found.experts_TK, expected.experts_TK)
    torch.testing.assert_close(found.weights_TK, expected.weights_TK, rtol=8e-3, atol=8e-3)


@pytest.mark.parametrize("tokens", TOKENS)
def test_pairs_are_sorted_by_expert(tokens: int) -> None:
    chosen = moe.route(randn(tokens, EXPERTS), CHOSEN).experts_TK
    order = sort_pairs(chosen, EXPERTS)
    values, places = chosen.flatten().sort(stable=True)
    assert torch.equal(order.pairs_P.long(), places)
    bounds = torch.searchsorted(values, torch.arange(EXPERTS + 1, device="cuda", dtype=torch.int32))
    assert torch.equal(order.starts_E1.long(), bounds)


@pytest.mark.parametrize("dtype", BOUND)
@pytest.mark.parametrize("tokens", TOKENS)
def test_a_mixture_agrees_with_the_reference(tokens: int, dtype: torch.dtype) -> None:
    x, (up, down) = randn(tokens, WIDTH, dtype=dtype), experts(dtype)
    routing = moe.route(randn(tokens, EXPERTS, dtype=dtype), CHOSEN)
    precise = Routing(routing.experts_TK, routing.weights_TK.float())
    plain = [ExpertLinear(weights.weight_EOI.float()) for weights in (up, down)]
    assert error(moe.mixture(x, routing, up, down), reference.mixture(x.float(), precise, *plain)) < BOUND[dtype]


@pytest.mark.parametrize("most_unsorted", [0, 16])
@pytest.mark.parametrize("float8", [False, True])
@pytest.mark.parametrize("tokens", [1, 2, 7, 8, 9, 16])
def test_few_tokens_find_their_experts_with_and_without_a_sort(tokens: int, float8: bool, most_unsorted: int) -> None:
    x, (up, down) = randn(tokens, WIDTH), experts(torch.bfloat16)
    routing = moe.route(randn(tokens, EXPERTS), CHOSEN)
    if float8:
        up, down = in_float8(up), in_float8(down)
    from stoop_worker.kernels.moe import kernel

    expected = reference.expert_outputs(x, routing, up, down)
    found = kernel.expert_outputs(x, routing, up, down, most_unsorted=most_unsorted)
    assert error(found.found_PC, expected.found_PC) < 1e-2


@pytest.mark.parametrize("tokens", [1, 64, 750])
def test_float8_experts_agree_with_the_reference(tokens: int) -> None:
    x, (up, down) = randn(tokens, WIDTH), map(in_float8, experts(torch.bfloat16))
    routing = moe.route(randn(tokens, EXPERTS), CHOSEN)
    bound = 1e-2 if tokens <= 128 else 5e-2  # more rows are quantised, too
    assert error(moe.mixture(x, routing, up, down), reference.mixture(x, routing, up, down)) < bound


def adapters(tokens: int, count: int, rank: int) -> ExpertAdapter:
    """Return `count` adapters side by side, behind an empty one; token t has the adapter t modulo their number."""
    columns = rank * (count + 1)
    return ExpertAdapter(
        randn(EXPERTS, columns, WIDTH) / WIDTH**0.5,
        randn(EXPERTS, columns, 2 * INNER) / rank**0.5,
        randn(EXPERTS, columns, INNER) / INNER**0.5,
        randn(EXPERTS, columns, WIDTH) / rank**0.5,
        rank=rank,
        numbers_T=torch.arange(tokens, device="cuda") % (count + 1),
    )


def in_floats(adapter: ExpertAdapter) -> ExpertAdapter:
    wide = {
        each.name: value.float()
        for each in fields(adapter)
        if (value := getattr(adapter, each.name)) is not adapter.numbers_T and isinstance(value, Tensor)
    }
    return replace(adapter, **wide)


@pytest.mark.parametrize(("count", "rank"), [(1, 2), (8, 2), (8, 4), (8, 16), (3, 24)])
@pytest.mark.parametrize("tokens", [1, 8, 64, 750, 3000])
def test_adapters_correct_both_products(tokens: int, count: int, rank: int) -> None:
    x, (up, down), adapter = randn(tokens, WIDTH), experts(torch.bfloat16), adapters(tokens, count, rank)
    routing = moe.route(randn(tokens, EXPERTS), CHOSEN)
    precise = Routing(routing.experts_TK, routing.weights_TK.float())
    plain = [ExpertLinear(weights.weight_EOI.float()) for weights in (up, down)]
    expected = reference.mixture(x.float(), precise, *plain, in_floats(adapter))
    assert error(expected, reference.mixture(x.float(), precise, *plain)) > 0.1 or tokens == 1
    assert error(moe.mixture(x, routing, up, down, adapter), expected) < 1e-2


def test_one_expert_may_take_all_tokens() -> None:
    x, (up, down) = randn(300, WIDTH), experts(torch.bfloat16)
    routing = Routing(torch.full((300, 1), 63, dtype=torch.int32, device="cuda"), randn(300, 1))
    assert error(moe.mixture(x, routing, up, down), reference.mixture(x, routing, up, down)) < 1e-2


@pytest.mark.parametrize("tokens", [1, 64, 256])
def test_a_captured_mixture_follows_other_routes(tokens: int) -> None:
    x, logits, (up, down) = randn(tokens, WIDTH), randn(tokens, EXPERTS), experts(torch.bfloat16)

    def run() -> Tensor:
        return moe.mixture(x, moe.route(logits, CHOSEN), up, down)

    run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = run()
    for _ in range(3):
        x.normal_()
        logits.normal_()
        graph.replay()
        assert error(found, run()) < 1e-3


@pytest.mark.parametrize("rounded", [False, True])
@pytest.mark.parametrize("tokens", [1, 16, 64, 750])
def test_temperatures_are_applied_while_rotating_and_writing(tokens: int, rounded: bool) -> None:
    qkv, w, alpha = randn(tokens, 3 * WIDTH), randn(2 * HEADS, 3 * WIDTH) / 80, randn(HEADS)
    positions = torch.arange(tokens, device="cuda") + 700
    table = rotation_table(2048, 32, 1.5e6, torch.device("cuda"))
    pools = [torch.zeros(2, 64, 16, HEADS, 64, device="cuda", dtype=torch.bfloat16) for _ in range(2)]
    slots = torch.randperm(64 * 16, device="cuda")[:tokens]
    ours = Heat(tau.tau_parts(qkv, w, tanh_gelu=False), alpha, rounded)
    plain = Heat(plain_tau.tau_parts(qkv, w, tanh_gelu=False), alpha, rounded)
    found = rotate_write(qkv, Places(positions, table, slots, heat=ours), pools[0])
    expected = plain_rotate.rotate_write(qkv, Places(positions, table, slots, heat=plain), pools[1])
    assert error(found, expected) < 1e-2 and error(pools[0], pools[1]) < 1e-2
