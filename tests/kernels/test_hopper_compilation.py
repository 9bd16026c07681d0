"""The kernels in CUDA C++ compile for Hopper: one that does not is replaced by a slower one, which no answer shows."""

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from stoop_worker.kernels.block_fp8 import BlockFp8, Weight
from stoop_worker.kernels.hopper import Shape, compiler, fallback
from stoop_worker.kernels.layer_stack import hopper as layer_stack
from stoop_worker.kernels.layer_stack.sizes import Sizes
from stoop_worker.kernels.paged_attention import hopper as paged_attention
from stoop_worker.kernels.row_linear import RowNorm
from stoop_worker.kernels.row_linear import hopper as one_row
from stoop_worker.kernels.skinny_linear import hopper as few_rows
from stoop_worker.kernels.vision_attention import hopper as vision_attention
from tests.support import nvrtc

HALF = torch.bfloat16
CPU = torch.device("cpu")
MODULES = (one_row, few_rows, layer_stack, paged_attention, vision_attention)

pytestmark = pytest.mark.skipif(nvrtc.library() is None, reason="the wheel nvidia-cuda-nvrtc compiles for GPUs")


class Compiled:
    def __init__(self, source: str, name: str, device: torch.device, *, architecture: str, shared_bytes: int) -> None:
        assert compiler.binary_of(source, name, architecture)

    def launch(self, *given: Any, **options: Any) -> None:
        pass


@pytest.fixture(autouse=True)
def without_a_device(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Compile kernels, and launch none."""
    monkeypatch.setattr(compiler, "_nvrtc", cache(nvrtc.library))
    monkeypatch.setattr(few_rows, "tensor_map", lambda *given, **options: None)
    for module in MODULES:
        for name, stand_in in {
            "is_hopper": lambda device: True,
            "multiprocessors": lambda device: 132,
            "compile_kernel": Compiled,
        }.items():
            if hasattr(module, name):
                monkeypatch.setattr(module, name, stand_in)
        module._compiled.cache_clear()
    monkeypatch.setattr(fallback, "compile_kernel", Compiled)
    monkeypatch.setattr(fallback, "_given_up", {})
    yield
    for module in MODULES:
        module._compiled.cache_clear()
    assert not fallback.given_up()


def weight(out: int, width: int, *, float8: bool) -> Weight:
    if not float8:
        return torch.empty(out, width, dtype=HALF)
    values = torch.empty(out, width, dtype=torch.uint8).view(torch.float8_e4m3fn)
    return BlockFp8(values, torch.ones(out // 128, width // 128), 128)


def row(width: int, count: int = 1) -> Tensor:
    return torch.empty(count, width, dtype=HALF)


@pytest.mark.parametrize("float8", [False, True])
def test_products_of_one_row(*, float8: bool) -> None:
    norm, added = RowNorm(row(2560)[0], 1e-6), row(2560)
    one_row.row_linear(row(2560), weight(6144, 2560, float8=float8), norm=norm, added_to_BN=None, gated=False)
    one_row.row_linear(row(2560), weight(19456, 2560, float8=float8), norm=norm, added_to_BN=None, gated=True)
    one_row.row_linear(row(4096), weight(2560, 4096, float8=float8), norm=None, added_to_BN=added, gated=False)


@pytest.mark.parametrize("float8", [False, True])
@pytest.mark.parametrize("count", [16, 64])
def test_products_of_few_rows(count: int, *, float8: bool) -> None:
    for out, width in ((3072, 2048), (19456, 2560)):
        x, given = row(width, count), weight(out, width, float8=float8)
        few_rows.linear(x, given)
        few_rows.linear(x, given, row(out)[0])
        few_rows.gated_linear(x, given)
        few_rows.split_linear(x, given)


def test_products_of_few_rows_in_float16() -> None:
    x, given = row(2560, 64).half(), weight(19456, 2560, float8=True)
    few_rows.linear(x, given, dtype=HALF)
    few_rows.linear(x, given, row(19456)[0].half())
    few_rows.split_linear(few_rows.gated_linear(x, given, factor=1 / 64), weight(2560, 9728, float8=True), factor=64.0)


@pytest.mark.parametrize(
    "sizes",
    [
        Sizes(2048, 8192, 32, 8, 64, 32, normed=False, float8=False, page=16, programs=132, layers=16),
        Sizes(2560, 9728, 32, 8, 128, 64, normed=True, float8=False, page=16, programs=132, layers=36),
        Sizes(2560, 9728, 32, 8, 128, 64, normed=True, float8=True, page=16, programs=132, layers=36),
        Sizes(2048, 8192, 32, 32, 64, 16, normed=False, float8=False, page=16, programs=132, layers=24, parallel=True),
    ],
)
def test_all_layers_of_one_row(sizes: Sizes) -> None:
    assert sizes.fits()
    layer_stack._compiled(sizes, CPU)


@pytest.mark.parametrize("out8", [False, True])
def test_attention_of_crops(*, out8: bool) -> None:
    vision_attention._compiled(Shape(), (729, 16), HALF, CPU, out8=out8)


@pytest.mark.parametrize("group", [1, 4])
def test_attention_over_pages(group: int) -> None:
    for shape in (paged_attention._SHAPE, paged_attention._SMALL):
        paged_attention._compiled(shape, (16, group), HALF, CPU)
