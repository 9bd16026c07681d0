"""The kernels that read float8 weights with a scale for each block, against the references."""

import pytest
import torch

from stoop_worker.kernels.block_fp8 import BlockFp8, kernel, reference
from stoop_worker.kernels.row_linear import RowNorm
from stoop_worker.kernels.row_linear import kernel as one
from stoop_worker.kernels.row_linear import reference as one_plain
from stoop_worker.kernels.skinny_linear import products
from stoop_worker.kernels.skinny_linear import reference as few_plain
from stoop_worker.kernels.skinny_linear.products import Cut

# the interpreter's dot takes no bfloat16
TOLERANCE = {torch.float32: 2e-5, torch.float16: 5e-3}


def drawn(rows: int, columns: int, side: int = 128) -> BlockFp8:
    values = (4 * torch.randn(rows, columns)).to(torch.float8_e4m3fn)
    return BlockFp8(values, (0.5 + torch.rand(-(-rows // side), -(-columns // side))) / 64, side)


def check(found: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype) -> None:
    tolerance = TOLERANCE[dtype]
    largest = float(expected.abs().max())
    torch.testing.assert_close(found.double(), expected.double(), rtol=tolerance, atol=tolerance * largest)


@pytest.mark.parametrize("shape", [(128, 512), (40, 700)])
def test_dense(shape: tuple[int, int]) -> None:
    weight = drawn(*shape, side=16)
    assert torch.equal(kernel.dense(weight, torch.float32), reference.dense(weight, torch.float32))


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("cut", [None, one.Cut(rows=32, columns=128), one.Cut(rows=8, columns=256)], ids=str)
def test_one_row(cut: one.Cut | None, gated: bool, dtype: torch.dtype) -> None:
    weight, x, norm = drawn(384, 512), torch.randn(1, 512).to(dtype), RowNorm(torch.randn(512).to(dtype), 1e-5)
    found = one.row_linear(x, weight, norm=norm, gated=gated, cut=cut)
    exact = RowNorm(norm.weight_C.double(), 1e-5)
    check(found, one_plain.row_linear(x.double(), weight, norm=exact, gated=gated), dtype)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("rows", [3, 64])
def test_few_rows(rows: int, dtype: torch.dtype) -> None:
    weight, x = drawn(256, 512), torch.randn(rows, 512).to(dtype)
    check(products.skinny_linear(x, weight), few_plain.split_linear(x.double(), weight)[0], dtype)
    gated = few_plain.gated_linear(x.double(), weight)
    check(products.gated_linear(x, weight), gated, dtype)
    check(products.gated_linear(x, weight, cut=Cut(32, columns=64)), gated, dtype)


@pytest.mark.parametrize(("width", "parts"), [(1024, 8), (512, 4), (768, 2)])
def test_parts_of_few_rows(width: int, parts: int) -> None:
    weight, x = drawn(64, width), torch.randn(3, width)
    found = products.split_linear(x, weight)
    assert len(found) == parts
    check(found.sum(dim=0), few_plain.split_linear(x.double(), weight)[0], torch.float32)


@pytest.mark.parametrize("shape", [(100, 512), (64, 200)])
def test_other_sizes_are_converted_first(shape: tuple[int, int]) -> None:
    weight, x = drawn(*shape), torch.randn(3, shape[1])
    expected = few_plain.split_linear(x.double(), weight)[0]
    check(products.skinny_linear(x, weight), expected, torch.float32)
    check(products.split_linear(x, weight)[0], expected, torch.float32)
    assert not one.divides(weight)


def test_a_row_of_another_cut_is_refused() -> None:
    with pytest.raises(ValueError, match="does not fit"):
        one.row_linear(torch.randn(1, 512), drawn(256, 512, side=16), cut=one.Cut(rows=32))
