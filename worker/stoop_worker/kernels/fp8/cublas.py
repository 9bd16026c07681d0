"""A linear layer and its GELU in one pass of cuBLASLt, which torch brings but does not offer for float8.

T rows, C input dim, N output dim. cuBLASLt counts columns first: its product is N x T, of the weight and the rows.
"""

import ctypes
from functools import cache
from typing import Any

import torch
from torch import Tensor

__all__ = ["Unsupported", "gelu_linear"]

# values of the enumerations in cublasLt.h and library_types.h
_FLOAT32, _BFLOAT16, _E4M3 = 0, 14, 28
_COMPUTE_FLOAT32 = 68
_TRANSPOSE_A, _EPILOGUE, _BIAS = 3, 7, 8
_SCALE_A, _SCALE_B, _SCALE_D = 17, 18, 20
_FAST_ACCUMULATION, _BIAS_TYPE = 25, 26
_GELU_AND_BIAS = 36
_MOST_WORKSPACE = 1
_WORKSPACE_BYTES = 32 << 20


class Unsupported(Exception):
    """The library has no such product on this device."""


class _Heuristic(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = [
        ("algorithm", ctypes.c_uint64 * 8),
        ("workspace_bytes", ctypes.c_size_t),
        ("status", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    ]


class _Product:
    """A product of a given size, with the library's first choice of an algorithm; raises `Unsupported`."""

    def __init__(self, rows: int, out: int, into: int, *, fast: bool) -> None:
        self._description = _created("cublasLtMatmulDescCreate", _COMPUTE_FLOAT32, _FLOAT32)
        self._set(_TRANSPOSE_A, ctypes.c_int(1))
        self._set(_EPILOGUE, ctypes.c_int(_GELU_AND_BIAS))
        self._set(_BIAS_TYPE, ctypes.c_int(_BFLOAT16))
        self._set(_FAST_ACCUMULATION, ctypes.c_int8(fast))
        self._layouts = [
            _layout(_E4M3, into, out),
            _layout(_E4M3, into, rows),
            _layout(_BFLOAT16, out, rows),  # of the tensor that is added, which there is none of
            _layout(_E4M3, out, rows),
        ]
        preference = _created("cublasLtMatmulPreferenceCreate")
        most = ctypes.c_uint64(_WORKSPACE_BYTES)
        _check(_library().cublasLtMatmulPreferenceSetAttribute(preference, _MOST_WORKSPACE, *_sized(most)))
        found, count = _Heuristic(), ctypes.c_int()
        status = _library().cublasLtMatmulAlgoGetHeuristic(
            _handle(), self._description, *self._layouts, preference, 1, ctypes.byref(found), ctypes.byref(count)
        )
        _check(_library().cublasLtMatmulPreferenceDestroy(preference))
        if status or not count.value:
            raise Unsupported
        self._found = found

    def run(self, x_TC: Tensor, weight_NC: Tensor, y_TN: Tensor, pointers: dict[int, Tensor]) -> None:
        """Start the product on torch's current stream."""
        for attribute, tensor in pointers.items():
            self._set(attribute, ctypes.c_void_p(tensor.data_ptr()))
        workspace = torch.empty(self._found.workspace_bytes, dtype=torch.uint8, device=x_TC.device)
        weight, rows, added, out = self._layouts
        _check(
            _library().cublasLtMatmul(
                _handle(),
                self._description,
                ctypes.byref(ctypes.c_float(1.0)),
                _pointer(weight_NC),
                weight,
                _pointer(x_TC),
                rows,
                ctypes.byref(ctypes.c_float(0.0)),
                None,
                added,
                _pointer(y_TN),
                out,
                ctypes.byref(self._found.algorithm),
                _pointer(workspace),
                ctypes.c_size_t(self._found.workspace_bytes),
                ctypes.c_void_p(torch.cuda.current_stream().cuda_stream),
            )
        )

    def _set(self, attribute: int, value: Any) -> None:
        _check(_library().cublasLtMatmulDescSetAttribute(self._description, attribute, *_sized(value)))


def gelu_linear(
    x_TC: Tensor, weight_NC: Tensor, bias_N: Tensor, *, scales: tuple[Tensor, Tensor], factor: Tensor, fast: bool
) -> Tensor:
    """Return `factor` times the tanh-GELU of x W^T + b as float8_e4m3fn, which saturates.

    `scales` are those of all rows and of the whole weight. All three are float32 on the device, and their first values
    count. Raises `Unsupported`.
    """
    y_TN = torch.empty(len(x_TC), len(weight_NC), dtype=x_TC.dtype, device=x_TC.device)
    with torch.cuda.device(x_TC.device):
        product = _product(*y_TN.shape, x_TC.shape[1], fast=fast, device=x_TC.device)
        pointers = {_SCALE_A: scales[1], _SCALE_B: scales[0], _SCALE_D: factor, _BIAS: bias_N}
        product.run(x_TC, weight_NC, y_TN, pointers)
    return y_TN


@cache
def _product(rows: int, out: int, into: int, *, fast: bool, device: torch.device) -> _Product:
    return _Product(rows, out, into, fast=fast)


def _layout(kind: int, width: int, count: int) -> ctypes.c_void_p:
    """Describe a contiguous tensor of `count` rows of `width` values."""
    sizes = ctypes.c_uint64(width), ctypes.c_uint64(count), ctypes.c_int64(width)
    return _created("cublasLtMatrixLayoutCreate", kind, *sizes)


def _created(function: str, *given: Any) -> ctypes.c_void_p:
    made = ctypes.c_void_p()
    _check(getattr(_library(), function)(ctypes.byref(made), *given))
    return made


def _sized(value: Any) -> tuple[Any, ctypes.c_size_t]:
    return ctypes.byref(value), ctypes.c_size_t(ctypes.sizeof(value))


def _pointer(tensor: Tensor) -> ctypes.c_void_p:
    return ctypes.c_void_p(tensor.data_ptr())


def _check(status: int) -> None:
    if status:
        raise RuntimeError(f"cuBLASLt ended with status {status}")


@cache
def _handle() -> ctypes.c_void_p:
    return _created("cublasLtCreate")


@cache
def _library() -> ctypes.CDLL:
    """Return the library, which torch has already loaded; raises `Unsupported` if there is none."""
    if torch.version.cuda is None:
        raise Unsupported
    try:
        return ctypes.CDLL(f"libcublasLt.so.{torch.version.cuda.split('.')[0]}")
    except OSError as error:
        raise Unsupported from error
