"""Times layer norm and the sums before it, at the encoder's width (1152) and the decoder's (2048), bfloat16."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.kernels.row import Row, check, microseconds, microseconds_captured
from stoop_worker.kernels import fp8, layer_norm
from stoop_worker.kernels.layer_norm import kernel

__all__ = ["alternatives", "rows"]

ENCODER, DECODER = 1152, 2048
CASES = [(6561, ENCODER, 1), (20412, ENCODER, 1), (41000, ENCODER, 1), (5920, DECODER, 2), (64, DECODER, 2)]

Norm = tuple[Tensor, tuple[Tensor, ...], Tensor, Tensor]


def torch_norm(x_TC: Tensor, added: tuple[Tensor, ...], weight_C: Tensor, bias_C: Tensor) -> Tensor:
    for other in added:
        x_TC = x_TC + other
    return functional.layer_norm(x_TC, x_TC.shape[-1:], weight_C, bias_C, 1e-5)


def torch_norm_fp8(*inputs: object) -> tuple[Tensor, Tensor]:
    return fp8.reference.quantise_rows(torch_norm(*inputs))  # type: ignore[arg-type]


def plain(x_TC: Tensor, added: tuple[Tensor, ...], weight_C: Tensor, bias_C: Tensor) -> Tensor:
    return layer_norm.layer_norm(x_TC, weight_C, bias_C)


def inputs(count: int, width: int, added: int) -> Norm:
    made = partial(torch.randn, device="cuda", dtype=torch.bfloat16)
    return made(count, width), tuple(made(count, width) for _ in range(added)), made(width), made(width)


def row(name: str, case: tuple[int, int, int], ours: Callable[..., object], library: Callable[..., object]) -> Row:
    """Time both; `case` is rows, width and sums. The rate counts x, the added tensors, the sum and the norm."""
    count, width, added = case
    given = inputs(*case)
    if count <= 128:
        ours_us, library_us = (
            microseconds_captured([partial(call, *inputs(*case)) for _ in range(24)]) for call in (ours, library)
        )
    else:
        ours_us, library_us = (microseconds(partial(call, *given)) for call in (ours, library))
    written = (added > 0) * 2 + (1 if "fp8" in name else 2)
    rate = count * width * (2 + 2 * added + written) / ours_us / 1e6
    return Row(name, f"{count} x {width}, {added} added", ours_us, library_us, "torch, one by one", f"{rate:.2f} TB/s")


def measure(case: tuple[int, int, int]) -> list[Row]:
    count, width, _ = case
    given = inputs(*case)
    check(layer_norm.add_layer_norm(*given)[1], torch_norm(*given), 1e-2)
    values, scale = layer_norm.add_layer_norm_fp8(*given)[1]
    check(values.float() * scale, torch_norm(*given), 5e-2)
    alone = inputs(count, width, 0)
    check(plain(*alone), torch_norm(*alone), 1e-2)
    return [
        row("layer norm", (count, width, 0), plain, torch_norm),
        row("add, layer norm", case, layer_norm.add_layer_norm, torch_norm),
        row("add, layer norm, fp8", case, layer_norm.add_layer_norm_fp8, torch_norm_fp8),
    ]


def rows() -> list[Row]:
    """Return the encoder's batches, a prefill and a decode."""
    return [row for case in CASES for row in measure(case)]


def alternatives() -> list[Row]:
    """Return other numbers of warps per row."""
    return [
        row(f"add, layer norm, {warps} warps", case, partial(kernel.add_layer_norm, row_warps=warps), torch_norm)
        for case in CASES
        for warps in (1, 2, 4, 8)
    ]
