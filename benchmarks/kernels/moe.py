"""Times Moondream 3's mixture of experts, 64 experts of which 8 are chosen, against torch's grouped products.

The rate of a decode is that of the weights it must read: an expert is read once if any token chose it. The rate of a
prefill is that of its products. The ceiling of both is the longer of these reads and these products.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor
from triton.runtime.errors import OutOfResources  # type: ignore[import-untyped]

from benchmarks.kernels.row import Row, check, least_us, microseconds, microseconds_captured
from stoop_worker.kernels.moe import ExpertAdapter, ExpertLinear, Routing, mixture, route
from stoop_worker.kernels.moe.kernel import mixture as launch
from stoop_worker.kernels.moe.products import Cut, computes_in_fp8
from stoop_worker.kernels.moe.reference import gated_gelu

__all__ = ["alternatives", "rows", "work"]

WIDTH, INNER, EXPERTS, CHOSEN = 2048, 1024, 64, 8
DECODES, PREFILLS = [1, 2, 4, 8, 16, 32, 64, 128, 256], [750, 3000, 8192]
ADAPTERS, RANK = 8, 2
HALVES = WIDTH, 2 * INNER, INNER, WIDTH  # the widths of A and B of both products
COPIES = 2  # of the weights: 1.6 GB, far more than a cache holds

DECODE_CUTS = [
    Cut(16, rows, columns, warps, stages)
    for rows in (32, 64, 128)
    for columns, stages in ((64, 4), (128, 3), (128, 5), (256, 3))
    for warps in (4, 8)
]
PREFILL_CUTS = [
    Cut(pairs, rows, 64, warps, stages)
    for pairs in (64, 128, 256)
    for rows in (64, 128)
    for warps, stages in ((4, 3), (8, 3), (8, 4))
]


def experts(*, float8: bool) -> tuple[ExpertLinear, ExpertLinear]:
    """Return random experts in bfloat16, or in float8 with their scales."""
    made = partial(torch.randn, device="cuda", dtype=torch.bfloat16)
    up, down = made(EXPERTS, 2 * INNER, WIDTH) / WIDTH**0.5, made(EXPERTS, WIDTH, INNER) / INNER**0.5
    return (_float8(up), _float8(down)) if float8 else (ExpertLinear(up), ExpertLinear(down))


def _float8(weight: Tensor) -> ExpertLinear:
    scales = weight.float().abs().amax(dim=-1) / 448
    return ExpertLinear((weight / scales[..., None]).to(torch.float8_e4m3fn), scales)


def _exact(weights: ExpertLinear) -> ExpertLinear:
    assert weights.scales_EO is not None, "these weights have no scales"
    return ExpertLinear((weights.weight_EOI.float() * weights.scales_EO[..., None]).bfloat16())


def grouped_torch(x: Tensor, routing: Routing, up: ExpertLinear, down: ExpertLinear) -> Tensor:
    """Do the same with torch's grouped product: sort, two products, activation, sum."""
    flat = routing.experts_TK.flatten()
    order = flat.argsort(stable=True)
    ends = torch.searchsorted(flat[order], torch.arange(EXPERTS, device="cuda", dtype=flat.dtype), right=True).int()
    inner = gated_gelu(torch._grouped_mm(x[order // CHOSEN], up.weight_EOI.transpose(1, 2), offs=ends))
    found = torch._grouped_mm(inner, down.weight_EOI.transpose(1, 2), offs=ends)
    by_pair = torch.empty_like(found)
    by_pair[order] = found
    return (by_pair.view(len(x), CHOSEN, -1) * routing.weights_TK[..., None]).sum(dim=1)


def work(tokens: int, read_experts: float, *, float8: bool, fp8: bool) -> dict[str, Any]:
    """Return the bytes of weights and the operations of a mixture of experts, as `least_us` takes them.

    The weights may be in `float8` where the products are not in `fp8`.
    """
    read = read_experts * 3 * INNER * WIDTH * (1 if float8 else 2)
    return {"bytes": read, "operations": tokens * CHOSEN * 6 * WIDTH * INNER, "fp8": fp8}


def _work(routing: Routing, up: ExpertLinear) -> dict[str, Any]:
    tokens, read = len(routing.experts_TK), len(torch.unique(routing.experts_TK))
    fp8 = computes_in_fp8(tokens * CHOSEN, up)
    return work(tokens, read, float8=up.scales_EO is not None, fp8=fp8)


def _rate(routing: Routing, up: ExpertLinear, us: float) -> str:
    found = _work(routing, up)
    if len(routing.experts_TK) > 256:
        return f"{found['operations'] / us / 1e6:.0f} TFLOP/s"
    return f"{found['bytes'] / us / 1e6:.2f} TB/s"


def measure(tokens: int, *, float8: bool) -> Row:
    """Time one size; tokens choose evenly at random."""
    layers = [experts(float8=float8) for _ in range(COPIES)]
    x = torch.randn(tokens, WIDTH, device="cuda", dtype=torch.bfloat16)
    logits = torch.randn(tokens, EXPERTS, device="cuda", dtype=torch.bfloat16)
    routing = route(logits, CHOSEN)
    plain = experts(float8=False)
    check(mixture(x, routing, *plain), grouped_torch(x, routing, *plain), 1e-2)
    if float8:
        wide = [_exact(weights) for weights in layers[0]]
        check(mixture(x, routing, *layers[0]), grouped_torch(x, routing, *wide), 1e-2 if tokens <= 128 else 5e-2)

    def ours(layer: tuple[ExpertLinear, ExpertLinear]) -> Tensor:
        return mixture(x, route(logits, CHOSEN), *layer)

    calls = [partial(ours, layer) for layer in layers]
    ours_us = microseconds_captured(calls) if tokens <= 256 else microseconds(calls[0])
    theirs_us = microseconds(partial(grouped_torch, x, routing, *plain))
    name = "experts, fp8 weights" if float8 else "experts"
    up = layers[0][0]
    rate, least = _rate(routing, up, ours_us), least_us(**_work(routing, up))
    return Row(name, f"{tokens} tokens", ours_us, theirs_us, "torch grouped, bf16", rate, least)


def measure_adapted(tokens: int) -> Row:
    """Time one size under eight adapters, which the tokens have in turn, against the same without any."""
    layers = [experts(float8=False) for _ in range(COPIES)]
    x = torch.randn(tokens, WIDTH, device="cuda", dtype=torch.bfloat16)
    logits = torch.randn(tokens, EXPERTS, device="cuda", dtype=torch.bfloat16)
    numbers = torch.arange(tokens, device="cuda") % ADAPTERS + 1

    def half(width: int) -> Tensor:
        made = torch.randn(EXPERTS, RANK * (ADAPTERS + 1), width, device="cuda", dtype=torch.bfloat16)
        return made / width**0.5

    def adapted(layer: tuple[ExpertLinear, ExpertLinear], adapter: ExpertAdapter | None) -> Tensor:
        return mixture(x, route(logits, CHOSEN), *layer, adapter)

    adapters = [ExpertAdapter(*map(half, HALVES), rank=RANK, numbers_T=numbers) for _ in layers]
    ours_us = microseconds_captured([partial(adapted, *each) for each in zip(layers, adapters, strict=True)])
    plain_us = microseconds_captured([partial(adapted, layer, None) for layer in layers])
    name = "experts, 8 adapters"
    return Row(name, f"{tokens} tokens", ours_us, plain_us, "ours without adapters", "")


def measure_cut(tokens: int, cut: Cut, *, float8: bool) -> Row | None:
    """Time one size with another split of the work; None if the device lacks the memory for it."""
    layers = [experts(float8=float8) for _ in range(COPIES)]
    x = torch.randn(tokens, WIDTH, device="cuda", dtype=torch.bfloat16)
    routing = route(torch.randn(tokens, EXPERTS, device="cuda", dtype=torch.bfloat16), CHOSEN)
    calls = [partial(launch, x, routing, *layer, cut=cut) for layer in layers]
    try:
        us = microseconds_captured(calls) if tokens <= 256 else microseconds(calls[0])
    except OutOfResources:
        return None
    shape = (
        f"{tokens}{' fp8' if float8 else ''}: {cut.pairs} x {cut.rows} x {cut.columns}, {cut.warps} w {cut.stages} s"
    )
    up = layers[0][0]
    return Row("experts, other cut", shape, us, None, "", _rate(routing, up, us), least_us(**_work(routing, up)))


def rows() -> list[Row]:
    """Return decodes and prefills, in bfloat16 and with float8 weights, and decodes under adapters."""
    plain = [measure(tokens, float8=float8) for float8 in (False, True) for tokens in DECODES + PREFILLS]
    return plain + [measure_adapted(tokens) for tokens in (1, 16, 64)]


def alternatives() -> list[Row]:
    """Return other splits for decodes and prefills."""
    cases = [(tokens, cut) for tokens in (1, 16, 64) for cut in DECODE_CUTS]
    cases += [(tokens, cut) for tokens in (256, 750, 3000) for cut in PREFILL_CUTS]
    found = (measure_cut(tokens, cut, float8=float8) for float8 in (False, True) for tokens, cut in cases)
    return [row for row in found if row is not None]
