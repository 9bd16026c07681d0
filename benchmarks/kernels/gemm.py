"""Times the model's large products in fp8 and with a fused GELU, against torch's in bfloat16.

Rates cover only the product: the cost of a row's scales is in the rows of `fp8` and `layer_norm`.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.kernels.row import Row, check, microseconds
from stoop_worker.kernels import fp8
from stoop_worker.kernels.fp8 import FixedScale, Fp8Linear

__all__ = ["rows"]

VISION = [(count, *sizes) for count in (6561, 20412, 41000) for sizes in ((1152, 3456), (1152, 1152), (4304, 1152))]
VISION_INNER = [(count, 1152, 4304) for count in (6561, 20412, 41000)]
TEXT = [(count, *sizes) for count in (750, 2960, 5920) for sizes in ((2048, 6144), (2048, 2048), (8192, 2048))]
TEXT_INNER = [(count, 2048, 8192) for count in (750, 2960, 5920)]
LARGEST = 448.0


def gelu_apart(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return functional.gelu(functional.linear(x, weight, bias), approximate="tanh")


def gelu_within(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return torch._addmm_activation(bias, x, weight.t(), use_gelu=True)


def per_tensor(x: Tensor, weight: Tensor, bias: Tensor) -> Callable[[], Tensor]:
    """Return the product with one scale for all of x and one for all of the weight."""
    scales = [matrix.abs().max().float() / LARGEST for matrix in (x, weight)]
    x8, weight8 = ((m / s).to(torch.float8_e4m3fn) for m, s in zip((x, weight), scales, strict=True))
    return partial(
        torch._scaled_mm, x8, weight8.t(), scale_a=scales[0], scale_b=scales[1], bias=bias,
        out_dtype=torch.bfloat16, use_fast_accum=True,
    )  # fmt: skip


def per_row(x: Tensor, weight: Tensor, bias: Tensor, *, fast: bool) -> Callable[[], Tensor]:
    values, scale = fp8.quantise_rows(x)
    return partial(fp8.scaled_linear, values, scale, Fp8Linear.of(weight, bias), fast=fast)


def gelu_to_fp8(x: Tensor, weight: Tensor, bias: Tensor, *, within: bool) -> Callable[[], tuple[Tensor, Tensor]]:
    """Return the product with its GELU as fp8: in one pass with one scale, or in two with a scale for each row."""
    if not within:
        product = per_row(x, weight, bias, fast=True)
        return lambda: fp8.gelu_fp8(product())
    scale = x.float().abs().amax().expand(len(x), 1) / LARGEST
    values = (x.float() / scale).to(torch.float8_e4m3fn)
    gelu = FixedScale.of(2 * functional.linear(x, weight, bias))
    return partial(fp8.gelu_linear_fp8, values, scale, Fp8Linear.of_one_scale(weight, bias, gelu=gelu))


def measure(count: int, width: int, out: int) -> list[Row]:
    """Time one product in every way; also with its GELU if it is the first layer of an MLP."""
    made = partial(torch.randn, device="cuda", dtype=torch.bfloat16)
    given = made(count, width), made(out, width) / width**0.5, made(out)
    flop, shape = 2 * count * width * out, f"{count} x {width} x {out}"
    expected = functional.linear(*given)
    linear_us = microseconds(partial(functional.linear, *given))
    label = f"bfloat16, {flop / linear_us / 1e6:.0f} TFLOP/s"
    found = []
    for name, call in (
        ("linear, fp8 a tensor", per_tensor(*given)),
        ("linear, fp8 a row", per_row(*given, fast=True)),
        ("linear, fp8 a row, slow sums", per_row(*given, fast=False)),
    ):
        check(call(), expected, 6e-2)
        us = microseconds(call)
        found.append(Row(name, shape, us, linear_us, label, f"{flop / us / 1e6:.0f} TFLOP/s"))
    if out in (4304, 8192):
        check(gelu_within(*given), gelu_apart(*given), 1e-2)
        us, apart_us = (microseconds(partial(call, *given)) for call in (gelu_within, gelu_apart))
        found.append(Row("linear, GELU", shape, us, apart_us, "torch, one by one", f"{flop / us / 1e6:.0f} TFLOP/s"))
        within, apart = (gelu_to_fp8(*given, within=each) for each in (True, False))
        values, scale = within()
        check(values.float() * scale, gelu_apart(*given), 6e-2)
        us, rate = microseconds(within), f"{flop / us / 1e6:.0f} TFLOP/s"
        found.append(Row("linear, GELU, all in fp8", shape, us, microseconds(apart), "in two passes", rate))
    return found


def rows() -> list[Row]:
    """Return the encoder's products and those of a prefill."""
    return [row for case in VISION + VISION_INNER + TEXT + TEXT_INNER for row in measure(*case)]
