"""Products of few rows and the sums after them as compiled kernels, at the sizes of Moondream 2's decode."""

import pytest
import torch
from torch import Tensor

from stoop_worker.kernels.block_fp8 import BlockFp8, Weight
from stoop_worker.kernels.layer_norm.reference import layer_norm
from stoop_worker.kernels.skinny_linear import (
    add_parts,
    add_parts_layer_norm,
    gated_mlp,
    linear,
    products,
    reference,
    rows_dtype,
    skinny_linear,
)
from stoop_worker.kernels.skinny_linear import split_linear as split

WIDTH, INNER, JOINED, VOCABULARY = 2048, 14336, 10240, 51200
ROWS = [1, 3, 16, 17, 32, 64, 65]
BOUND = {torch.bfloat16: 4e-3, torch.float16: 5e-4, torch.float32: 1e-5}


@pytest.fixture(autouse=True)
def drawn_alike() -> None:
    torch.manual_seed(0)


def randn(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.randn(*shape, device="cuda").to(dtype)


def error(found: Tensor, expected: Tensor) -> float:
    return float((found.double() - expected.double()).norm() / expected.double().norm())


@pytest.mark.parametrize("in_line", [False, True])
@pytest.mark.parametrize("dtype", BOUND)
@pytest.mark.parametrize("out", [INNER, VOCABULARY])
@pytest.mark.parametrize("rows", ROWS)
def test_skinny_linear(rows: int, out: int, dtype: torch.dtype, *, in_line: bool) -> None:
    x, weight, bias = randn(rows, WIDTH, dtype=dtype), randn(out, WIDTH, dtype=dtype), randn(out, dtype=dtype)
    found = skinny_linear(x, weight, bias, in_line=in_line)
    assert found.dtype == dtype
    assert error(found, reference.skinny_linear(x.float(), weight.float(), bias.float())) < BOUND[dtype]


@pytest.mark.parametrize("dtype", BOUND)
@pytest.mark.parametrize("rows", ROWS)
def test_split_linear(rows: int, dtype: torch.dtype) -> None:
    weight, x = randn(WIDTH, JOINED, dtype=dtype), randn(rows, JOINED, dtype=dtype)
    parts = split(x, weight)
    count = 1 if dtype == torch.float32 or rows > 64 else 4 if rows == 1 else 8
    assert (parts.dtype, parts.shape) == (torch.float32, (count, rows, WIDTH))
    # far less than what rounding to bfloat16 costs: the parts are not rounded
    assert error(parts.sum(dim=0), reference.split_linear(x.float(), weight.float())[0]) < 1e-4


@pytest.mark.parametrize("rows", [1, 64])
@pytest.mark.parametrize("cut", [products.Cut(64, parts=10, warps=8), products.Cut(128, 64, parts=4)], ids=str)
def test_other_cuts_of_split_linear(cut: products.Cut, rows: int) -> None:
    weight, x = randn(WIDTH, JOINED), randn(rows, JOINED)
    found = products.split_linear(x, weight, cut=cut)
    assert found.shape == (cut.parts, rows, WIDTH)
    assert error(found.sum(dim=0), reference.split_linear(x.float(), weight.float())[0]) < 1e-4


def test_strided_rows_are_read_without_the_memory_beside_them() -> None:
    whole = torch.full((5, WIDTH + 16), torch.nan, dtype=torch.bfloat16, device="cuda")
    whole[1:4, :WIDTH] = randn(3, WIDTH)
    x, weight, bias = whole[1:4, :WIDTH], randn(INNER, WIDTH), randn(INNER)
    assert torch.equal(skinny_linear(x, weight, bias), skinny_linear(x.contiguous(), weight, bias))
    assert torch.equal(split(x, weight), split(x.contiguous(), weight))


@pytest.mark.parametrize("dtype", BOUND)
@pytest.mark.parametrize("count", [1, 8, 10])
@pytest.mark.parametrize("rows", ROWS)
def test_parts_are_added_as_the_reference_adds_them(rows: int, count: int, dtype: torch.dtype) -> None:
    x, parts, bias = randn(rows, WIDTH, dtype=dtype), randn(count, rows, WIDTH, dtype=torch.float32), randn(WIDTH)
    bias, weight, shift = bias.to(dtype), randn(WIDTH, dtype=dtype), randn(WIDTH, dtype=dtype)
    expected = reference.add_parts(x, parts, bias)
    summed, normed = add_parts_layer_norm(x, parts, bias, weight, shift)
    assert torch.equal(summed, expected)
    assert torch.equal(add_parts(x, parts, bias), expected)
    exact = layer_norm(expected.double(), weight.double(), shift.double())
    assert error(normed, exact) < BOUND[dtype]


@pytest.mark.parametrize("rows", [1, 16, 64])
def test_a_layer_s_products_can_be_captured(rows: int) -> None:
    x, norm = randn(rows, WIDTH), (randn(WIDTH), randn(WIDTH))
    first, first_bias = randn(INNER, WIDTH) / WIDTH**0.5, randn(INNER)
    second, second_bias = randn(WIDTH, JOINED) / JOINED**0.5, randn(WIDTH)

    def run() -> tuple[Tensor, Tensor]:
        joined = skinny_linear(x, first, first_bias)[:, :JOINED]
        return add_parts_layer_norm(x, split(joined, second), second_bias, *norm)

    run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = run()
    for _ in range(3):
        x.normal_()
        graph.replay()
        for one, other in zip(found, run(), strict=True):
            assert error(one, other) < BOUND[x.dtype]


def some_weight(out: int, width: int, *, float8: bool, dtype: torch.dtype = torch.bfloat16) -> Weight:
    drawn = torch.randn(out, width, device="cuda")
    if not float8:
        return (drawn * width**-0.5).to(dtype)
    scales = (torch.rand(out // 128, width // 128, device="cuda") + 0.5) * width**-0.5
    return BlockFp8(drawn.to(torch.float8_e4m3fn), scales, 128)


@pytest.mark.parametrize("float8", [False, True])
@pytest.mark.parametrize(("out", "width"), [(3072, 2048), (2048, 8192), (6144, 2560), (2560, 4096), (384, 1024)])
@pytest.mark.parametrize("rows", [2, 16, 17, 33, 64])
def test_products_of_a_step_of_several_rows(rows: int, out: int, width: int, *, float8: bool) -> None:
    weight = some_weight(out, width, float8=float8)
    x = randn(rows, width).to(rows_dtype(randn(rows, width), weight))
    exact = reference.split_linear(x.double(), weight)[0]
    made = linear(x, weight, dtype=torch.bfloat16, in_line=True)
    assert made.dtype is torch.bfloat16
    assert error(made, exact) < BOUND[torch.bfloat16]
    assert error(split(x, weight, in_line=True).sum(dim=0), exact) < 1e-4


@pytest.mark.parametrize("float8", [False, True])
@pytest.mark.parametrize(("dim", "inner"), [(2048, 8192), (2560, 9728), (1024, 384)])
@pytest.mark.parametrize("rows", [2, 17, 64])
def test_a_gated_mlp_of_several_rows(rows: int, dim: int, inner: int, *, float8: bool) -> None:
    dtype = torch.float16 if float8 else torch.bfloat16
    first, second = some_weight(2 * inner, dim, float8=float8), some_weight(dim, inner, float8=float8)
    x = randn(rows, dim, dtype=dtype)
    found = gated_mlp(x, first, second).sum(dim=0)
    assert error(found, reference.gated_mlp(x.double(), first, second)[0]) < BOUND[dtype]


def test_gated_values_beyond_the_range_of_float16_are_kept() -> None:
    first, second = some_weight(1024, 512, float8=True), some_weight(512, 512, float8=True)
    x = 300 * randn(64, 512, dtype=torch.float16)
    exact = reference.gated_mlp(x.double(), first, second)[0]
    assert reference.gated_linear(x.double(), first).abs().amax() > 100_000
    assert error(gated_mlp(x, first, second).sum(dim=0), exact) < BOUND[torch.float16]
