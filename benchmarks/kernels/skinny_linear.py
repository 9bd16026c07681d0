"""Times the decode's products at the sizes of Moondream 2, bfloat16, each on its own layer's weights.

Rates count the weights read. "split, add, layer norm" ends a decoder layer: the product in parts and one launch for
their sum, the residual and the norm, against torch's linear and the kernel that adds and normalises.
"""

from functools import partial
from itertools import product

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.kernels.row import Row, check, microseconds_captured
from stoop_worker.kernels.layer_norm import add_layer_norm
from stoop_worker.kernels.skinny_linear import add_parts_layer_norm, products, skinny_linear, split_linear, sums
from stoop_worker.kernels.skinny_linear.products import Cut

__all__ = ["alternatives", "rows"]

WIDTH, INNER, JOINED, VOCABULARY, LAYERS = 2048, 14336, 10240, 51200, 24
COUNTS = [1, 4, 16, 32, 64]

Ending = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]
"""The residual stream, the product's input, its weight and bias, and the norm's weight and bias."""


def made(*shape: int) -> Tensor:
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def whole(count: int, out: int) -> Row:
    given = [(made(count, WIDTH), made(out, WIDTH) / WIDTH**0.5, made(out)) for _ in range(LAYERS)]
    check(skinny_linear(*given[0]), functional.linear(*given[0]), 1e-2)
    ours_us, library_us = (
        microseconds_captured([partial(call, *each) for each in given]) for call in (skinny_linear, functional.linear)
    )
    shape = f"{count} x {WIDTH} x {out}"
    return Row("skinny linear", shape, ours_us, library_us, "torch linear", rate(out * WIDTH, ours_us))


def ending(x_BC: Tensor, joined_BK: Tensor, weight: Tensor, bias: Tensor, *norm: Tensor) -> tuple[Tensor, Tensor]:
    return add_parts_layer_norm(x_BC, split_linear(joined_BK, weight), bias, *norm)


def torch_ending(x_BC: Tensor, joined_BK: Tensor, weight: Tensor, bias: Tensor, *norm: Tensor) -> tuple[Tensor, Tensor]:
    return add_layer_norm(x_BC, (functional.linear(joined_BK, weight, bias),), *norm)


def endings(count: int) -> list[Ending]:
    return [
        (made(count, WIDTH), made(count, JOINED), made(WIDTH, JOINED) / JOINED**0.5, *(made(WIDTH) for _ in range(3)))
        for _ in range(LAYERS)
    ]


def split(count: int) -> list[Row]:
    """Time the product in parts alone, and with the sum and the norm after it."""
    given = endings(count)
    for found, expected in zip(ending(*given[0]), torch_ending(*given[0]), strict=True):
        check(found, expected, 1e-2)
    shape, size = f"{count} x {JOINED} x {WIDTH}", WIDTH * JOINED
    alone_us, linear_us = (
        microseconds_captured([partial(call, *each[1:3]) for each in given])
        for call in (split_linear, functional.linear)
    )
    both_us, library_us = (
        microseconds_captured([partial(call, *each) for each in given]) for call in (ending, torch_ending)
    )
    library = "torch linear; add, layer norm"
    return [
        Row("split linear", shape, alone_us, linear_us, "torch linear", rate(size, alone_us)),
        Row("split, add, layer norm", shape, both_us, library_us, library, rate(size, both_us)),
    ]


def rate(weights: int, us: float) -> str:
    return f"{2 * weights / us / 1e6:.2f} TB/s"


def rows() -> list[Row]:
    """Return the first product of a layer, the last one of a step, and the end of a layer."""
    found = [whole(count, out) for out in (INNER, VOCABULARY) for count in COUNTS]
    return found + [row for count in COUNTS for row in split(count)]


def alternatives() -> list[Row]:
    """Return other splits of the product in parts, for more than 16 rows, and of their sum."""
    return [row for count in (32, 64) for row in (*other_cuts(count), *other_sums(count))]


def other_cuts(count: int) -> list[Row]:
    given = endings(count)
    x, weight = given[0][1:3]
    linear_us = microseconds_captured([partial(functional.linear, *each[1:3]) for each in given])
    found = []
    for block, parts, columns, warps, stages in product((64, 128), (4, 8, 10), (64, 128), (4, 8), (3, 4)):
        call = partial(products.split_linear, cut=Cut(block, columns, parts=parts, warps=warps, stages=stages))
        check(call(x, weight).sum(dim=0), functional.linear(x, weight), 1e-2)
        us = microseconds_captured([partial(call, *each[1:3]) for each in given])
        name = f"split linear, {block} x {columns} / {parts}"
        shape = f"{count} rows, {warps} warps, {stages} stages"
        found.append(Row(name, shape, us, linear_us, "torch linear", rate(WIDTH * JOINED, us)))
    return found


def other_sums(count: int) -> list[Row]:
    """Time the sum of 4, 8 and 10 parts with the norm; the library's call adds a single tensor."""
    given = [(made(count, WIDTH), *(made(WIDTH) for _ in range(3))) for _ in range(LAYERS)]
    library_us = microseconds_captured([partial(add_layer_norm, x, (x,), *norm) for x, _, *norm in given])
    found = []
    for parts in (4, 8, 10):
        many = [torch.randn(parts, count, WIDTH, device="cuda") for _ in given]
        us = microseconds_captured(
            [partial(sums.add_parts_layer_norm, x, each, *rest) for (x, *rest), each in zip(given, many, strict=True)]
        )
        moved = f"{(4 * parts + 6) * count * WIDTH / us / 1e6:.2f} TB/s"
        shape = f"{count} rows, {parts} parts"
        found.append(Row("add parts, layer norm", shape, us, library_us, "add, layer norm", moved))
    return found
