"""The kernels for few rows against their references; outputs that they do not write are NaN, and so are inputs that
they must not read.
"""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from stoop_worker.kernels.moe import ExpertOutputs
from stoop_worker.kernels.skinny_linear import products, reference, sums
from stoop_worker.kernels.skinny_linear.products import Cut
from stoop_worker.kernels.skinny_linear.reference import Others
from tests.support.matrices import within

# the interpreter's dot takes no bfloat16
TOLERANCE = {torch.float32: 2e-5, torch.float16: 5e-3}
ROWS = [1, 3, 16, 17, 64]


@pytest.fixture(autouse=True)
def poisoned_outputs() -> Iterator[None]:
    """Fill what `torch.empty` returns with NaN."""
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)
    assert torch.empty(8).isnan().all()
    yield
    torch.use_deterministic_algorithms(False)


def check(found: Tensor, expected: Tensor, dtype: torch.dtype) -> None:
    error = (found.double() - expected.double()).norm() / expected.double().norm()
    assert error <= TOLERANCE[dtype] / 5
    torch.testing.assert_close(found.double(), expected.double(), rtol=TOLERANCE[dtype], atol=10 * TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("rows", ROWS)
def test_skinny_linear(rows: int, dtype: torch.dtype) -> None:
    x, weight, bias = within(rows, 256, dtype), within(256, 256, dtype), torch.randn(256).to(dtype)
    found = products.skinny_linear(x, weight, bias)
    assert (found.dtype, found.shape) == (dtype, (rows, 256))
    check(found, reference.skinny_linear(x.double(), weight.double(), bias.double()), dtype)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("cut", [Cut(64, parts=2), Cut(32, columns=64, parts=4), Cut(16, columns=32)], ids=str)
def test_split_linear(rows: int, cut: Cut, dtype: torch.dtype) -> None:
    x, weight = within(rows, 512, dtype), within(64, 512, dtype)
    found = products.split_linear(x, weight, cut=cut)
    assert (found.dtype, found.shape) == (torch.float32, (cut.parts, rows, 64))
    width = 512 // cut.parts
    for part, columns in enumerate(range(0, 512, width)):
        pair = (matrix[:, columns : columns + width].double() for matrix in (x, weight))
        check(found[part], reference.split_linear(*pair)[0], torch.float32)


@pytest.mark.parametrize(("rows", "parts"), [(1, 4), (2, 8)])
def test_one_row_has_fewer_parts(rows: int, parts: int) -> None:
    x, weight = within(rows, 1024, torch.float16), within(64, 1024, torch.float16)
    found = products.split_linear(x, weight)
    assert len(found) == parts
    check(found.sum(dim=0), reference.split_linear(x.double(), weight.double())[0], torch.float32)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("rows", "out", "width"), [(3, 200, 256), (3, 256, 200), (0, 256, 256), (65, 64, 1024)])
def test_other_sizes_go_to_torch(rows: int, out: int, width: int, dtype: torch.dtype) -> None:
    x, weight, bias = within(rows, width, dtype), within(out, width, dtype), torch.randn(out).to(dtype)
    assert torch.equal(products.skinny_linear(x, weight, bias), functional.linear(x, weight, bias))
    parts = products.split_linear(x, weight)
    assert (parts.dtype, parts.shape) == (torch.float32, (1, rows, out))
    assert torch.equal(parts, reference.split_linear(x, weight))


def test_columns_may_be_strided() -> None:
    x, weight, bias = (torch.randn(128, count).T for count in (3, 128, 1))
    exact = reference.skinny_linear(x, weight, bias[0])
    check(products.skinny_linear(x, weight, bias[0]), exact, torch.float32)
    check(products.skinny_linear(x, weight.contiguous(), bias[0]), exact, torch.float32)


def test_a_whole_product_is_not_cut_into_parts() -> None:
    x, weight, bias = (torch.randn(*shape) for shape in ((1, 256), (128, 256), (128,)))
    with pytest.raises(ValueError, match="split_linear"):
        products.skinny_linear(x, weight, bias, cut=Cut(128, parts=2))


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("rows", "width"), [(1, 2048), (3, 72), (17, 96), (64, 128), (0, 128)])
@pytest.mark.parametrize("count", [1, 3, 8])
def test_parts_are_added_as_the_reference_adds_them(count: int, rows: int, width: int, dtype: torch.dtype) -> None:
    x, bias, norm_weight, norm_bias = (within(size, width, dtype) for size in (rows, 1, 1, 1))
    parts = torch.randn(count, rows, width)
    given = x, parts, bias[0]
    expected, expected_norm = reference.add_parts_layer_norm(*given, norm_weight[0], norm_bias[0])
    summed, normed = sums.add_parts_layer_norm(*given, norm_weight[0], norm_bias[0])
    assert torch.equal(summed, expected)
    assert torch.equal(sums.add_parts(*given), expected)
    torch.testing.assert_close(normed, expected_norm, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


@pytest.mark.parametrize("corrected", [False, True])
def test_weighted_experts_and_corrections_join_the_sum(corrected: bool) -> None:
    x, parts, bias, weight = torch.randn(3, 48), torch.randn(2, 3, 48), torch.randn(48), torch.randn(48)
    experts = ExpertOutputs(torch.randn(3 * 4, 48), torch.rand(3, 4))
    others = Others(experts, torch.randn(3, 48) if corrected else None)
    expected = reference.add_parts_layer_norm(x, parts, bias, weight, bias, others=others)
    found = sums.add_parts_layer_norm(x, parts, bias, weight, bias, others=others)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)
    alone = x + parts.sum(dim=0) + bias + (experts.found_PC.view(3, 4, 48) * experts.weights_TK[..., None]).sum(dim=1)
    alone += 0 if others.corrections_BC is None else others.corrections_BC
    torch.testing.assert_close(sums.add_parts(x, parts, bias, others=others), alone)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("rows", "width"), [(1, 2048), (3, 72), (17, 96), (0, 128)])
@pytest.mark.parametrize("count", [1, 4])
def test_parts_without_a_bias_and_their_rms_norm(count: int, rows: int, width: int, dtype: torch.dtype) -> None:
    x, weight = (within(size, width, dtype) for size in (rows, 1))
    parts = torch.randn(count, rows, width)
    expected, expected_norm = reference.add_parts_rms_norm(x, parts, weight[0], epsilon=1e-5)
    summed, normed = sums.add_parts_rms_norm(x, parts, weight[0], epsilon=1e-5)
    assert torch.equal(summed, expected)
    assert torch.equal(sums.add_parts(x, parts), expected)
    torch.testing.assert_close(normed, expected_norm, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


def test_the_rms_norm_of_a_sum_may_have_another_dtype() -> None:
    x, parts, weight = within(3, 72, torch.float32), torch.randn(2, 3, 72), within(1, 72, torch.float32)[0]
    expected, expected_norm = reference.add_parts_rms_norm(x, parts, weight, epsilon=1e-5)
    summed, normed = sums.add_parts_rms_norm(x, parts, weight, epsilon=1e-5, dtype=torch.float16)
    assert torch.equal(summed, expected)
    assert normed.dtype is torch.float16
    torch.testing.assert_close(normed.float(), expected_norm, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("cut", [Cut(64), Cut(32, columns=64)], ids=str)
@pytest.mark.parametrize("rows", ROWS)
def test_gated_linear(rows: int, cut: Cut, dtype: torch.dtype) -> None:
    x, weight = within(rows, 256, dtype), within(256, 256, dtype) / 16
    found = products.gated_linear(x, weight, cut=cut)
    assert (found.dtype, found.shape) == (dtype, (rows, 128))
    check(found, reference.gated_linear(x.double(), weight.double()), dtype)


@pytest.mark.parametrize(("rows", "gates", "width"), [(3, 100, 256), (3, 128, 200), (17, 128, 256)])
def test_other_sizes_of_gated_products_go_to_torch(rows: int, gates: int, width: int) -> None:
    x, weight = within(rows, width, torch.float32), within(2 * gates, width, torch.float32) / 16
    check(products.gated_linear(x, weight), reference.gated_linear(x.double(), weight.double()), torch.float32)


@pytest.mark.parametrize(("width", "parts"), [(1024, 8), (1536, 4), (768, 2)])
def test_a_product_has_as_many_parts_as_its_columns_allow(width: int, parts: int) -> None:
    x, weight = within(3, width, torch.float16), within(64, width, torch.float16)
    found = products.split_linear(x, weight)
    assert len(found) == parts
    check(found.sum(dim=0), reference.split_linear(x.double(), weight.double())[0], torch.float32)


def test_parts_of_another_shape_are_refused() -> None:
    x, parts, bias = torch.randn(2, 16), torch.randn(4, 3, 16), torch.randn(16)
    with pytest.raises(ValueError, match="do not fit"):
        sums.add_parts(x, parts, bias)
