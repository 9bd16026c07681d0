"""Times the float8 products of several rows at the sizes of Qwen3-4B, by the split of their work.

Each answer is compared with the same product in float32, and with itself in many calls: a race would change it.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.kernels.row import Row, check, least_us, microseconds_captured
from stoop_worker.kernels.block_fp8 import BlockFp8, dense
from stoop_worker.kernels.skinny_linear import hopper
from stoop_worker.kernels.skinny_linear.hopper import Shape

__all__ = ["alternatives", "rows"]

LAYERS, CALLS, ROWS = 12, 100, 64
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
    x = torch.randn(count, width, device="cuda", dtype=torch.bfloat16)
    found, expected = call(x, weights[0], shape=shape), x.float() @ dense(weights[0], torch.float32).t()
    if call is hopper.gated_linear:
        gates, ups = expected.chunk(2, dim=1)
        expected = functional.silu(gates) * ups
    check(found.sum(dim=0) if call is hopper.split_linear else found, expected, 5e-3)
    if not all(torch.equal(found, call(x, weights[0], shape=shape)) for _ in range(CALLS)):
        raise ValueError(f"{name}: calls with the same values give different answers")
    us = microseconds_captured([partial(call, x, each, shape=shape) for each in weights])
    rate = f"{out * width / us / 1e6:.2f} TB/s"
    described = "usual" if shape is None else f"{shape.tiles} tiles, {shape.split} groups, {shape.parts} parts"
    return Row(f"float8 {name}", f"{count} rows, {described}", us, None, "", rate, least_us(bytes=out * width))


def rows() -> list[Row]:
    """Return the usual splits."""
    return [row(name, count, None) for name in PRODUCTS for count in (2, 16, 17, 32, 64)]


def alternatives() -> list[Row]:
    """Return other splits."""
    return [row(name, ROWS, shape) for name, (*_, shapes) in PRODUCTS.items() for shape in shapes]
