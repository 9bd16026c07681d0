"""Times the products of several rows: in float8 at the sizes of Qwen3-4B, in bfloat16 also at those of Llama 3.2 1B.

Rows for float8 weights are in float16, as in a step. Each answer is compared with the same product in float32, and with
itself in many calls: a race would change it. The library's side of a gated product includes the gate.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.kernels.row import Row, check, least_us, microseconds_captured
from stoop_worker.kernels.block_fp8 import BlockFp8, Weight, dense
from stoop_worker.kernels.skinny_linear import hopper
from stoop_worker.kernels.skinny_linear.hopper import Shape
from stoop_worker.kernels.swiglu import swiglu

__all__ = ["alternatives", "rows"]

LAYERS, CALLS, ROWS = 6, 100, 64
IN_16_BITS: dict[str, tuple[int, int, Callable[..., Tensor]]] = {
    "Llama qkv": (3072, 2048, hopper.linear),
    "Llama out": (2048, 2048, hopper.split_linear),
    "Llama gate and up": (16384, 2048, hopper.gated_linear),
    "Llama down": (2048, 8192, hopper.split_linear),
    "Qwen3 qkv": (6144, 2560, hopper.linear),
    "Qwen3 out": (2560, 4096, hopper.split_linear),
    "Qwen3 gate and up": (19456, 2560, hopper.gated_linear),
    "Qwen3 down": (2560, 9728, hopper.split_linear),
}
PRODUCTS: dict[str, tuple[int, int, Callable[..., Tensor], tuple[Shape, ...]]] = {
    "qkv": (6144, 2560, hopper.linear, (Shape(1), Shape(1, 2), Shape(2))),
    "out": (2560, 4096, hopper.split_linear, (Shape(1, 3, 2), Shape(1, 2, 3), Shape(2, 1, 6))),
    "gate and up": (19456, 2560, hopper.gated_linear, (Shape(2), Shape(1), Shape(1, 3))),
    "down": (2560, 9728, hopper.split_linear, (Shape(1, 3, 2), Shape(1, 2, 3), Shape(2, 1, 6))),
}


def weight(out: int, width: int) -> BlockFp8:
    values = torch.randn(out, width, device="cuda").to(torch.float8_e4m3fn)
    scales = (torch.rand(out // 128, width // 128, device="cuda") + 0.5) * width**-0.5
    return BlockFp8(values, scales, 128)


def row(name: str, count: int, shape: Shape | None) -> Row:
    out, width, call, _ = PRODUCTS[name]
    weights = [weight(out, width) for _ in range(LAYERS)]
    x = torch.randn(count, width, device="cuda", dtype=torch.float16)
    compare(partial(call, shape=shape), call, x, weights[0])
    us = microseconds_captured([partial(call, x, each, shape=shape) for each in weights])
    rate = f"{out * width / us / 1e6:.2f} TB/s"
    described = "usual" if shape is None else f"{shape.tiles} tiles, {shape.split} groups, {shape.parts} parts"
    return Row(f"float8 {name}", f"{count} rows, {described}", us, None, "", rate, least_us(bytes=out * width))


def compare(call: Callable[..., Tensor], product: Callable[..., Tensor], x: Tensor, given: Weight) -> None:
    """Raise `ValueError` unless a call's answer is right, and the same each time."""
    exact = given.float() if isinstance(given, Tensor) else dense(given, torch.float32)
    found, expected = call(x, given), x.float() @ exact.t()
    if product is hopper.gated_linear:
        gates, ups = expected.chunk(2, dim=1)
        expected = functional.silu(gates) * ups
    check(found.sum(dim=0) if product is hopper.split_linear else found, expected, 5e-3)
    if not all(torch.equal(found, call(x, given)) for _ in range(CALLS)):
        raise ValueError("calls with the same values give different answers")


def row_in_16_bits(name: str) -> Row:
    out, width, call = IN_16_BITS[name]
    weights = [torch.randn(out, width, device="cuda", dtype=torch.bfloat16) * width**-0.5 for _ in range(LAYERS)]
    x = torch.randn(ROWS, width, device="cuda", dtype=torch.bfloat16)
    compare(call, call, x, weights[0])
    theirs = gated if call is hopper.gated_linear else functional.linear
    ours_us, theirs_us = (microseconds_captured([partial(one, x, each) for each in weights]) for one in (call, theirs))
    rate, least = f"{2 * out * width / ours_us / 1e6:.2f} TB/s", least_us(bytes=2 * out * width)
    return Row(f"16 bits, {name}", f"{ROWS} rows", ours_us, theirs_us, "cuBLAS", rate, least)


def gated(x: Tensor, given: Tensor) -> Tensor:
    return swiglu(functional.linear(x, given))


def rows() -> list[Row]:
    """Return the usual splits."""
    float8 = [row(name, count, None) for name in PRODUCTS for count in (2, 16, 17, 32, 64)]
    return [*float8, *map(row_in_16_bits, IN_16_BITS)]


def alternatives() -> list[Row]:
    """Return other splits."""
    return [row(name, ROWS, shape) for name, (*_, shapes) in PRODUCTS.items() for shape in shapes]
