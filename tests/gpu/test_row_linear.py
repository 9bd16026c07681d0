"""Products of one row, and gated products of few rows, as compiled kernels at the sizes of real decoders."""

import pytest
import torch
from torch import Tensor

from stoop_worker.kernels.block_fp8 import BlockFp8, dense
from stoop_worker.kernels.block_fp8 import reference as blocks
from stoop_worker.kernels.row_linear import RowNorm, reference, row_linear
from stoop_worker.kernels.row_linear import hopper as one_row
from stoop_worker.kernels.skinny_linear import add_parts_rms_norm, linear, products
from stoop_worker.kernels.skinny_linear import hopper as few_rows
from stoop_worker.kernels.skinny_linear import reference as few
from stoop_worker.kernels.skinny_linear.products import Cut

BOUND = {torch.bfloat16: 4e-3, torch.float16: 5e-4}
DIMS = [(2048, 8192), (3072, 8192), (2560, 9728)]


@pytest.fixture(params=["any kernel", "Triton's"], autouse=True)
def kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a test with those that the device has, then with Triton's alone."""
    if request.param == "Triton's":
        for module in (one_row, few_rows):
            monkeypatch.setattr(module, "takes", lambda *given, **steps: False)


def randn(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.randn(*shape, device="cuda").to(dtype)


def error(found: Tensor, expected: Tensor) -> float:
    return float((found.double() - expected.double()).norm() / expected.double().norm())


@pytest.mark.parametrize("dtype", BOUND)
@pytest.mark.parametrize(("dim", "inner"), DIMS)
def test_the_halves_of_an_mlp_in_one_row(dim: int, inner: int, dtype: torch.dtype) -> None:
    x, gate_up, down = randn(1, dim, dtype=dtype), randn(2 * inner, dim) / dim**0.5, randn(dim, inner) / inner**0.5
    norm = RowNorm(randn(dim, dtype=dtype), 1e-5)
    found = row_linear(x, gate_up.to(dtype), norm=norm, gated=True)
    assert (found.dtype, found.shape) == (dtype, (1, inner))
    assert error(found, reference.row_linear(x.float(), gate_up.to(dtype), norm=norm, gated=True)) < BOUND[dtype]
    ended = row_linear(found, down.to(dtype), added_to_BN=x)
    assert error(ended, reference.row_linear(found.float(), down.to(dtype), added_to_BN=x)) < BOUND[dtype]


@pytest.mark.parametrize(("dim", "out"), [(2048, 3072), (2560, 6144), (2048, 128256), (2560, 151936)])
def test_norm_and_product_in_one_row(dim: int, out: int) -> None:
    x, weight, norm = randn(1, dim), randn(out, dim) / dim**0.5, RowNorm(randn(dim), 1e-6)
    found = row_linear(x, weight, norm=norm)
    assert error(found, reference.row_linear(x.float(), weight, norm=norm)) < BOUND[x.dtype]


@pytest.mark.parametrize("dtype", BOUND)
@pytest.mark.parametrize(("dim", "inner"), [(2048, 8192), (2560, 9728), (2560, 4096)])
def test_layers_one_after_another_in_a_graph(dim: int, inner: int, dtype: torch.dtype) -> None:
    x, norm = randn(1, dim, dtype=dtype), RowNorm(torch.ones(dim, device="cuda", dtype=dtype), 1e-5)
    ups = [(randn(2 * inner, dim) / dim**0.5).to(dtype) for _ in range(6)]
    downs = [(randn(dim, inner) / inner**0.5).to(dtype) for _ in range(6)]

    def run(row: Tensor) -> Tensor:
        for up, down in zip(ups, downs, strict=True):
            row = row_linear(row_linear(row, up, norm=norm, gated=True), down, added_to_BN=row)
        return row

    run(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = run(x)
    for _ in range(20):  # kernels that start early must not read a row that is not ready
        x.normal_()
        expected = x
        for up, down in zip(ups, downs, strict=True):
            inner_row = reference.row_linear(expected, up, norm=norm, gated=True)
            expected = reference.row_linear(inner_row, down, added_to_BN=expected)
        graph.replay()
        assert error(found, expected) < 4 * BOUND[dtype]


def test_nothing_beside_the_row_is_read() -> None:
    whole = torch.full((3, 4096), torch.nan, device="cuda", dtype=torch.bfloat16)
    whole[1, 1024:3072] = randn(2048)
    weight = randn(2048, 2048)
    assert torch.equal(row_linear(whole[1:2, 1024:3072], weight), row_linear(whole[1:2, 1024:3072].clone(), weight))


@pytest.mark.parametrize("cut", [None, Cut(64, stages=3), Cut(64, 64)], ids=str)
@pytest.mark.parametrize("rows", [2, 3, 16, 17, 64, 65])
@pytest.mark.parametrize(("dim", "inner"), DIMS)
def test_gated_products_of_few_rows(dim: int, inner: int, rows: int, cut: Cut | None) -> None:
    x, weight = randn(rows, dim), randn(2 * inner, dim) / dim**0.5
    found = products.gated_linear(x, weight, cut=cut)
    assert error(found, few.gated_linear(x.float(), weight.float())) < 2 * BOUND[x.dtype]


@pytest.mark.parametrize(("dim", "inner"), DIMS)
def test_a_down_product_has_several_parts(dim: int, inner: int) -> None:
    x, weight, residual, norm = randn(64, inner), randn(dim, inner) / inner**0.5, randn(64, dim), randn(dim)
    parts = products.split_linear(x, weight)
    assert len(parts) in (4, 8)
    exact = residual.double() + x.double() @ weight.double().T
    summed, normed = add_parts_rms_norm(residual, parts, norm, epsilon=1e-6)
    assert error(summed, exact) < 1e-2
    assert error(normed, torch.nn.functional.rms_norm(exact, (dim,), norm.double(), 1e-6)) < 1e-2


def in_float8(out: int, width: int) -> BlockFp8:
    scales = (0.5 + torch.rand(out // 128, width // 128, device="cuda")) * width**-0.5
    return BlockFp8(randn(out, width).to(torch.float8_e4m3fn), scales, 128)


@pytest.mark.parametrize("dtype", BOUND)
def test_one_row_with_weights_in_float8(dtype: torch.dtype) -> None:
    x, gate_up, down, norm = randn(1, 2560, dtype=dtype), in_float8(19456, 2560), in_float8(2560, 9728), randn(2560)
    steps = RowNorm(norm.to(dtype), 1e-6)
    found = row_linear(x, gate_up, norm=steps, gated=True)
    assert error(found, reference.row_linear(x.float(), gate_up, norm=steps, gated=True)) < BOUND[dtype]
    ended = row_linear(found, down, added_to_BN=x)
    assert error(ended, reference.row_linear(found.float(), down, added_to_BN=x)) < BOUND[dtype]


@pytest.mark.parametrize("dtype", BOUND)
@pytest.mark.parametrize("rows", [2, 16, 17, 64, 65, 300])
def test_any_number_of_rows_with_weights_in_float8(rows: int, dtype: torch.dtype) -> None:
    x, inner = randn(rows, 2560, dtype=dtype), randn(rows, 9728, dtype=dtype)
    qkv, gate_up, down = in_float8(6144, 2560), in_float8(19456, 2560), in_float8(2560, 9728)
    assert error(linear(x, qkv), x.double() @ blocks.dense(qkv, torch.float64).T) < BOUND[dtype] * 2
    gated = few.gated_linear(x.float(), gate_up)
    assert error(products.gated_linear(x, gate_up), gated) < BOUND[dtype] * 3
    summed = products.split_linear(inner, down).sum(dim=0)
    bound = 1e-4 if rows <= 64 else BOUND[dtype] * 2  # for many rows the weight is rounded
    assert error(summed, inner.double() @ blocks.dense(down, torch.float64).T) < bound


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_weight_in_float8_is_converted(dtype: torch.dtype) -> None:
    weight = in_float8(6144, 2560)
    assert torch.equal(dense(weight, dtype), blocks.dense(weight, dtype))
