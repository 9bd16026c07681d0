"""Kernels in CUDA C++ that do not compile: the kernels that take their place run in Triton's interpreter."""

from typing import Any

import pytest
import torch
from torch import Tensor

from stoop_worker.kernels import row_linear, skinny_linear
from stoop_worker.kernels.block_fp8 import BlockFp8
from stoop_worker.kernels.block_fp8.reference import wide as wide_values
from stoop_worker.kernels.hopper import fallback, given_up
from stoop_worker.kernels.row_linear import RowNorm
from stoop_worker.kernels.row_linear import hopper as one_row
from stoop_worker.kernels.row_linear import reference as row_reference
from stoop_worker.kernels.skinny_linear import hopper as few_rows
from stoop_worker.kernels.skinny_linear import reference as few_reference


@pytest.fixture
def attempts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let the CPU be a GPU whose compiler refuses every source; return the names of those it was given."""
    given: list[str] = []

    def refuse(source: str, name: str, *rest: Any, **options: Any) -> None:
        given.append(name)
        raise RuntimeError(f"{name} does not compile: {name}.cu(7): error: no such instruction\n1 error detected")

    for package in (row_linear, skinny_linear):
        monkeypatch.setattr(package, "uses_kernel", lambda *tensors: True)
    for module in (one_row, few_rows):
        monkeypatch.setattr(module, "is_hopper", lambda device: True)
        monkeypatch.setattr(module, "multiprocessors", lambda device: 132)
    monkeypatch.setattr(fallback, "compile_kernel", refuse)
    monkeypatch.setattr(fallback, "_given_up", {})
    return given


def drawn(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape) + shape[0])).half()


def in_float8(out: int, width: int) -> BlockFp8:
    scales = torch.rand((out // 128, width // 128), generator=torch.Generator().manual_seed(1))
    return BlockFp8(drawn(out, width).to(torch.float8_e4m3fn), scales, 128)


def test_a_row_is_multiplied_without_the_kernel_that_does_not_compile(attempts: list[str]) -> None:
    x, weight, norm = drawn(1, 256), drawn(128, 256), RowNorm(drawn(256), 1e-5)
    assert one_row.takes(x, weight, norm, None, gated=False)
    found = [row_linear.row_linear(x, weight, norm=norm) for _ in range(3)]
    for y in found:
        torch.testing.assert_close(y, row_reference.row_linear(x, weight, norm=norm), atol=2e-2, rtol=2e-3)
    assert attempts == ["row_product"]
    reason = "row_product does not compile: row_product.cu(7): error: no such instruction"
    assert given_up() == {"row_product": reason}


@pytest.mark.parametrize(("rows", "float8"), [(3, True), (17, False)])
@pytest.mark.parametrize("product", ["linear", "gated_mlp", "split_linear"])
def test_few_rows_are_multiplied_without_the_kernel_that_does_not_compile(
    product: str, rows: int, attempts: list[str], *, float8: bool
) -> None:
    x, weight = drawn(rows, 512), in_float8(256, 512) if float8 else drawn(256, 512) / 23
    down = in_float8(256, 128) if float8 else drawn(256, 128) / 11
    assert few_rows.takes(x, weight)
    call = {
        "linear": lambda: skinny_linear.linear(x, weight, in_line=True),
        "gated_mlp": lambda: skinny_linear.gated_mlp(x, weight, down),
        "split_linear": lambda: skinny_linear.split_linear(x, weight, in_line=True),
    }[product]
    found = [call() for _ in range(3)]
    wide = {
        "linear": lambda: x.float() @ wide_values(weight, torch.float32).T,
        "gated_mlp": lambda: few_reference.gated_mlp(x, weight, down).sum(0),
        "split_linear": lambda: few_reference.split_linear(x, weight).sum(0),
    }[product]()
    for y in found:
        summed = y if product == "linear" else y.sum(0)
        torch.testing.assert_close(summed.float(), wide, atol=0.01 * float(wide.abs().max()), rtol=5e-3)
    assert attempts == ["few_rows"]
    assert list(given_up()) == ["few_rows"]
