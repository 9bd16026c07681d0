"""Linear layers in fp8. T rows, C input dim, N output dim."""

import torch
from torch import Tensor
from torch.nn import functional

from stoop_worker.kernels.backend import uses_kernel
from stoop_worker.kernels.fp8 import reference
from stoop_worker.kernels.fp8.reference import FixedScale, Fp8Linear, quantise_by, quantise_weight

__all__ = [
    "FixedScale",
    "Fp8Linear",
    "gelu_fp8",
    "gelu_linear_fp8",
    "quantise_by",
    "quantise_rows",
    "quantise_weight",
    "scaled_linear",
]

_FEWEST_FAST = 64  # cuBLAS lacks fast accumulation for fewer rows of some shapes


def quantise_rows(x_TC: Tensor) -> tuple[Tensor, Tensor]:
    """Return rows as float8_e4m3fn, and scale_T1 float32: a row's largest magnitude maps to 448, fp8's largest."""
    if uses_kernel(x_TC):
        from stoop_worker.kernels.fp8.kernel import quantise_rows as launch

        return launch(x_TC)
    return reference.quantise_rows(x_TC)


def gelu_fp8(x_TC: Tensor) -> tuple[Tensor, Tensor]:
    """Return the tanh-GELU of rows, rounded to their dtype and then quantised as by `quantise_rows`."""
    if uses_kernel(x_TC):
        from stoop_worker.kernels.fp8.kernel import gelu_fp8 as launch

        return launch(x_TC)
    return reference.gelu_fp8(x_TC)


def gelu_linear_fp8(x8_TC: Tensor, scale_T1: Tensor, weights: Fp8Linear) -> tuple[Tensor, Tensor]:
    """Return the tanh-GELU of a layer with a `gelu`, as float8_e4m3fn, and the scale of all its values, (1, 1).

    All rows have the same scale.
    """
    if not x8_TC.is_cuda:
        return reference.gelu_linear_fp8(x8_TC, scale_T1, weights)
    assert weights.gelu is not None, "the scale must be known before the values"
    from stoop_worker.kernels.fp8 import cublas

    rows_TC = x8_TC.reshape(-1, x8_TC.shape[-1])
    scales = scale_T1, weights.scale_N
    try:
        values_TN = cublas.gelu_linear(
            rows_TC,
            weights.weight,
            weights.bias,
            scales=scales,
            factor=weights.gelu.inverse_11,
            fast=len(rows_TC) >= _FEWEST_FAST,
        )
    except cublas.Unsupported:
        y_TN = functional.gelu(scaled_linear(rows_TC, scale_T1, weights), approximate="tanh")
        values_TN = quantise_by(y_TN, weights.gelu)
    return values_TN.view(*x8_TC.shape[:-1], -1), weights.gelu.scale_11


def scaled_linear(x8_TC: Tensor, scale_T1: Tensor, weights: Fp8Linear, *, fast: bool = True) -> Tensor:
    """Return x W^T + b for quantised rows, in the bias's dtype (bfloat16 on CUDA).

    `fast` lets the tensor cores accumulate with fewer bits. On CUDA, C and N must be multiples of 16.
    """
    if not x8_TC.is_cuda:
        return reference.scaled_linear(x8_TC, scale_T1, weights)
    rows_TC = x8_TC.reshape(-1, x8_TC.shape[-1])
    one_scale = weights.scale_N.numel() == 1
    y_TN = torch._scaled_mm(
        rows_TC,
        weights.weight.t(),
        scale_a=scale_T1.reshape(-1, 1)[:1] if one_scale else scale_T1.reshape(-1, 1),
        scale_b=weights.scale_N[None],
        bias=weights.bias,
        out_dtype=weights.bias.dtype,
        use_fast_accum=fast and rows_TC.shape[0] >= _FEWEST_FAST,
    )
    return y_TN.view(*x8_TC.shape[:-1], -1)
