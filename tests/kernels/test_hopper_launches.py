"""The launches of the CUDA C++ kernels for decode steps. The kernels need a GPU; here a launch is only noted."""

import re
from collections.abc import Iterator, Sequence
from importlib.resources import files
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from stoop_worker.kernels.block_fp8 import BlockFp8, Weight
from stoop_worker.kernels.hopper import defined, fallback, products_of
from stoop_worker.kernels.row_linear import RowNorm
from stoop_worker.kernels.row_linear import hopper as one_row
from stoop_worker.kernels.skinny_linear import hopper as few_rows
from stoop_worker.kernels.skinny_linear import products

A_MULTIPROCESSOR = 227 * 1024
FILES = ["row_linear/product.cu", "skinny_linear/few.cu"]
HALF = torch.bfloat16


class Launch(NamedTuple):
    source: str
    grid: tuple[int, int, int]
    threads: int
    shared_bytes: int
    arguments: Sequence[Any]

    def number(self, name: str) -> int:
        """Return a number that the host defines."""
        found = re.search(rf"#define {name} (\d+)", self.source)
        assert found is not None
        return int(found[1])

    def parameters(self) -> int:
        """Return how many parameters the kernel has."""
        found = re.search(r'extern "C" __global__ .*?\)\s*\w+\(([^)]*)\)', self.source, re.DOTALL)
        assert found is not None
        return len(found[1].split(","))


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Launch]]:
    """Let the CPU be a GPU whose launches are noted."""
    noted: list[Launch] = []

    class Kernel:
        def __init__(self, source: str, *given: Any, **options: Any) -> None:
            self.source = source

        def launch(self, *given: Any, early: bool) -> None:
            noted.append(Launch(self.source, *given))

    for module in (one_row, few_rows):
        monkeypatch.setattr(module, "is_hopper", lambda device: True)
        monkeypatch.setattr(module, "multiprocessors", lambda device: 132)
        module._compiled.cache_clear()
    monkeypatch.setattr(fallback, "compile_kernel", Kernel)
    monkeypatch.setattr(few_rows, "tensor_map", lambda *given, **options: None)
    yield noted
    for module in (one_row, few_rows):
        module._compiled.cache_clear()


def in_float8(out: int, width: int) -> BlockFp8:
    values = torch.empty(out, width, dtype=torch.uint8).view(torch.float8_e4m3fn)
    return BlockFp8(values, torch.ones(out // 128, width // 128), 128)


def weight(out: int, width: int, *, float8: bool) -> Weight:
    return in_float8(out, width) if float8 else torch.empty(out, width, dtype=HALF)


def row(width: int, count: int = 1) -> Tensor:
    return torch.empty(count, width, dtype=HALF)


@pytest.mark.parametrize("float8", [False, True])
@pytest.mark.parametrize(
    ("out", "width", "steps"),
    [(3072, 2048, "norm"), (2048, 2048, "sum"), (19456, 2560, "norm gated"), (2560, 9728, "sum"), (6144, 2560, "norm")],
)
def test_a_row_leaves_room_for_the_next_kernel(
    out: int, width: int, steps: str, launches: list[Launch], *, float8: bool
) -> None:
    norm, gated = RowNorm(row(width)[0], 1e-5) if "norm" in steps else None, "gated" in steps
    given = weight(out, width, float8=float8)
    added = row(out) if "sum" in steps else None
    assert one_row.takes(row(width), given, norm, added, gated=gated)
    y = one_row.row_linear(row(width), given, norm=norm, added_to_BN=added, gated=gated)
    assert y.shape == (1, out // 2 if gated else out)
    (launch,) = launches
    assert launch.parameters() == len(launch.arguments)
    assert 2 * (launch.shared_bytes + 2048) <= A_MULTIPROCESSOR
    assert 2 * launch.threads <= 1024


@pytest.mark.parametrize("float8", [False, True])
@pytest.mark.parametrize("count", [2, 16, 17, 64])
@pytest.mark.parametrize(("out", "width"), [(6144, 2560), (2560, 4096), (19456, 2560), (2560, 9728), (3072, 2048)])
def test_few_rows_fit_in_shared_memory(
    count: int, out: int, width: int, launches: list[Launch], *, float8: bool
) -> None:
    x, given = row(width, count), weight(out, width, float8=float8)
    assert few_rows.takes(x, given)
    assert few_rows.linear(x, given).shape == (count, out)
    assert few_rows.linear(x, given, row(out)[0]).shape == (count, out)
    assert few_rows.gated_linear(x, given).shape == (count, out // 2)
    parts = few_rows.split_linear(x, given)
    assert parts.shape[1:] == (count, out)
    assert parts.dtype is torch.float32
    for launch in launches:
        assert launch.parameters() == len(launch.arguments)
        assert launch.shared_bytes <= A_MULTIPROCESSOR
        assert launch.threads <= 1024
        # a stage always has the same warpgroup of a tile: only then are its turns awaited one after the other
        assert launch.number("STAGES") % launch.number("SPLIT") == 0
        assert launch.grid[1] == launch.number("PARTS")
        # a cluster has at most eight programs on every device
        assert launch.number("PARTS") <= 8
        assert launch.grid[0] * launch.grid[1] <= 132  # no program waits for another to end
    assert launches[-1].grid[1] == len(parts)


def test_a_product_with_a_bias_starts_early_in_a_step_of_such_products(launches: list[Launch]) -> None:
    given, bias = weight(14336, 2048, float8=False), torch.zeros(14336, dtype=HALF)
    for count in (17, 64):
        products.skinny_linear(row(2048, count), given, bias, in_line=True)
    assert [launch.number("BIASED") for launch in launches] == [1, 1]
    products.skinny_linear(row(2048, 64), given, bias)
    assert len(launches) == 2  # the library's
    parts = products.split_linear(row(10240, 64), weight(2048, 10240, float8=False), in_line=True)
    assert (launches[-1].number("BIASED"), launches[-1].number("PARTS")) == (0, len(parts))


def test_rows_for_float8_weights_are_stored_in_float16(launches: list[Launch]) -> None:
    x, float8, plain = row(512, 64), weight(128, 512, float8=True), weight(128, 512, float8=False)
    assert products.rows_dtype(x, (float8, float8)) is torch.float16
    assert products.rows_dtype(x, (float8, plain)) is HALF
    assert products.rows_dtype(row(512), (float8,)) is HALF  # one row has kernels of its own
    gates_ups = weight(2 * 512, 512, float8=True)
    parts = products.gated_mlp(x.half(), gates_ups, float8)
    gated, summed = (launch.arguments[-1].value for launch in launches)
    assert (gated * summed, parts.dtype) == (1, torch.float32)
    assert gated < 1


def test_a_vocabulary_is_left_to_the_library(launches: list[Launch]) -> None:
    assert not few_rows.takes(row(2048, 64), weight(128256, 2048, float8=False))
    assert few_rows.takes(row(2048, 64), weight(16384, 2048, float8=False))


def test_others_do_not_fit() -> None:
    x, plain = row(512), weight(128, 512, float8=False)
    assert not one_row.takes(x, plain, None, None, gated=False)  # this is the CPU
    assert not few_rows.takes(row(512, 2), in_float8(128, 512))


@pytest.mark.parametrize("file", FILES)
def test_a_source_has_its_numbers_and_products_first(file: str) -> None:
    text = defined(file, {"BATCH": 16}, HALF, products=products_of(16, HALF))
    assert text.index("#define BATCH 16") < text.index("scores<16>") < text.index('extern "C" __global__')
    assert files("stoop_worker.kernels").joinpath(file).read_text() in text
