"""Times the products of one row at the sizes of real decoders, each on its own layer's weights in bfloat16 or float8.

A product with its norm, gating or sum is compared with the library's launches that it replaces, with weights in
bfloat16. This also holds for products of several rows with weights in float8. `alternatives` times other cuts, and
Triton's kernel.
"""

from collections.abc import Callable
from functools import partial
from itertools import product

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.kernels.row import Row, check, microseconds_captured
from stoop_worker.kernels.block_fp8 import BlockFp8, Weight, dense, values_of
from stoop_worker.kernels.rms_norm import rms_norm
from stoop_worker.kernels.row_linear import RowNorm, kernel, row_linear
from stoop_worker.kernels.skinny_linear import gated_linear, linear, products, split_linear
from stoop_worker.kernels.swiglu import swiglu

__all__ = ["alternatives", "rows"]

LLAMA_1B, QWEN_4B = (2048, 3072, 2048, 8192), (2560, 6144, 4096, 9728)
"""Model dim, columns of q, k and v, columns of attention, inner dim of the MLP."""

LAYERS, EPSILON = 16, 1e-6
CUTS = [
    kernel.Cut(rows, 512, warps, stages, held)
    for rows, warps in ((8, 4), (16, 4), (16, 8), (32, 8))
    for stages, held in ((3, 1), (3, 2), (4, 2), (6, 2))
]


def made(*shape: int) -> Tensor:
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def weights(out: int, width: int) -> list[Tensor]:
    return [made(out, width) / width**0.5 for _ in range(LAYERS)]


def in_float8(given: list[Tensor]) -> list[BlockFp8]:
    """Return the weights with a scale for each block of 128 x 128."""
    return [
        BlockFp8(
            (weight * weight.shape[1] ** 0.5).to(torch.float8_e4m3fn),
            torch.full((weight.shape[0] // 128, weight.shape[1] // 128), weight.shape[1] ** -0.5, device="cuda"),
            128,
        )
        for weight in given
    ]


def rate_of(weight: Weight, us: float) -> str:
    values = values_of(weight)
    return f"{values.numel() * values.element_size() / us / 1e6:.2f} TB/s"


def library(x: Tensor, weight: Tensor, norm: RowNorm | None, added_to: Tensor | None, gated: bool) -> Tensor:
    """Return the same by one launch after the other."""
    if norm is not None:
        x = rms_norm(x, norm.weight_C, epsilon=norm.epsilon)
    y = functional.linear(x, weight)
    if gated:
        y = swiglu(y)
    return y if added_to is None else added_to + y


def row(name: str, out: int, width: int, *, float8: bool = False) -> Row:
    """Time a product; its name lists its steps."""
    normed, added, gated = "norm" in name, "sum" in name, "gate" in name
    x, norm = made(1, width), RowNorm(made(width), EPSILON) if normed else None
    added_to = made(1, out) if added else None
    plain = weights(2 * out if gated else out, width)
    given = in_float8(plain) if float8 else plain
    ours: Callable[..., Tensor] = partial(row_linear, norm=norm, added_to_BN=added_to, gated=gated)
    theirs = partial(library, norm=norm, added_to=added_to, gated=gated)
    first = given[0]
    check(ours(x, first), theirs(x, dense(first, x.dtype) if isinstance(first, BlockFp8) else first), 1e-2)
    ours_us = microseconds_captured([partial(ours, x, weight) for weight in given])
    theirs_us = microseconds_captured([partial(theirs, x, weight) for weight in plain])
    name = f"one row, {name}{', float8' if float8 else ''}"
    return Row(name, f"{width} to {out}", ours_us, theirs_us, "one after the other, bf16", rate_of(first, ours_us))


def few(name: str, count: int, out: int, width: int) -> Row:
    """Time a product of several rows with weights in float8."""
    x, plain = made(count, width), weights(out, width)
    given = in_float8(plain)
    ours = {"qkv": linear, "gate and up": gated_linear}.get(name, split_linear)
    theirs = partial(library, norm=None, added_to=None, gated=name == "gate and up")
    found = ours(x, given[0])
    check(found.sum(0) if found.dim() == 3 else found, theirs(x, dense(given[0], x.dtype)), 1e-2)
    ours_us = microseconds_captured([partial(ours, x, weight) for weight in given])
    theirs_us = microseconds_captured([partial(theirs, x, weight) for weight in plain])
    rate = rate_of(given[0], ours_us)
    return Row(f"few rows, {name}, float8", f"{count} x {width} to {out}", ours_us, theirs_us, "torch, bf16", rate)


def layer(sizes: tuple[int, int, int, int], *, float8: bool = False) -> list[Row]:
    dim, columns, attended, inner = sizes
    return [
        row("norm, qkv", columns, dim, float8=float8),
        row("out, sum", dim, attended, float8=float8),
        row("norm, gate and up", inner, dim, float8=float8),
        row("down, sum", dim, inner, float8=float8),
    ]


def few_rows(count: int) -> list[Row]:
    dim, columns, attended, inner = QWEN_4B
    sizes = {"qkv": (columns, dim), "out": (dim, attended), "gate and up": (2 * inner, dim), "down": (dim, inner)}
    return [few(name, count, *size) for name, size in sizes.items()]


def rows() -> list[Row]:
    """Return the four products of a layer, and the vocabulary's."""
    heads = [row("norm, vocabulary", out, dim) for out, dim in ((128256, 2048), (151936, 2560))]
    float8 = [*layer(QWEN_4B, float8=True), *few_rows(4), *few_rows(16), *few_rows(64)]
    return [*layer(LLAMA_1B), *layer(QWEN_4B), *heads, *float8, *(gated(count) for count in (2, 4, 16, 32, 64))]


def gated(count: int, cut: products.Cut | None = None) -> Row:
    """Time the gated product of several rows, by our kernel whatever their number."""
    dim, _, _, inner = QWEN_4B
    x, given = made(count, dim), weights(2 * inner, dim)
    usual = products.Cut(rows=64, stages=3, held=1) if count <= products.MOST_ROWS else products.Cut(64, 64)
    ours = partial(products.gated_linear, cut=cut or usual)
    check(ours(x, given[0]), swiglu(functional.linear(x, given[0])), 1e-2)
    ours_us = microseconds_captured([partial(ours, x, weight) for weight in given])
    theirs_us = microseconds_captured([partial(library, x, w, None, None, True) for w in given])
    rate = f"{2 * given[0].numel() / ours_us / 1e6:.2f} TB/s"
    name = "gated product" if cut is None else str(cut).replace("Cut", "gated")
    return Row(name, f"{count} x {dim} to {inner}", ours_us, theirs_us, "torch linear; swiglu", rate)


def alternatives() -> list[Row]:
    """Return other cuts."""
    found = []
    for name, out, width in (("out", 2048, 2048), ("down", 2560, 9728)):
        x, given = made(1, width), weights(out, width)
        for cut in CUTS:
            us = microseconds_captured([partial(kernel.row_linear, x, weight, cut=cut) for weight in given])
            rate = f"{2 * given[0].numel() / us / 1e6:.2f} TB/s"
            found.append(Row(f"one row, {name}", str(cut), us, None, "", rate))
    for cut in CUTS[:8]:
        x, given = made(1, 2560), weights(2 * 9728, 2560)
        us = microseconds_captured([partial(kernel.row_linear, x, weight, gated=True, cut=cut) for weight in given])
        rate = f"{2 * given[0].numel() / us / 1e6:.2f} TB/s"
        found.append(Row("one row, gate and up", str(cut), us, None, "", rate))
    cuts = [products.Cut(*shape, stages=stages) for shape in ((64, 64), (64, 128), (32, 128)) for stages in (2, 3, 4)]
    return found + [gated(count, cut) for count, cut in product((16, 32, 64), cuts)]
