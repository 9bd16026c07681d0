"""Compiles CUDA C++ at run time with the NVRTC that ships with torch, for kernels that Triton cannot express well.

Sources include no headers, so that no CUDA toolkit has to be installed.
"""

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

__all__ = ["CudaKernel", "TensorMap", "binary_of", "compile_kernel", "has_compiler", "load_nvrtc", "tensor_map"]

# numbers from cuda.h
_MOST_SHARED_BYTES = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_MAP_TYPES = {torch.float8_e4m3fn: 0, torch.float16: 6, torch.bfloat16: 9}  # CU_TENSOR_MAP_DATA_TYPE_…
_SWIZZLE_NONE, _SWIZZLE_128_BYTES = 0, 3
_FETCH_256_BYTES = 3  # CU_TENSOR_MAP_L2_PROMOTION_L2_256B
_MAP_BYTES, _MAP_ALIGNMENT = 128, 64
_EARLY = 6  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION


class TensorMap(ctypes.Structure):
    """The copy engine's description of a tensor; a kernel takes it by value, as a `__grid_constant__`."""

    _fields_ = [("bytes", ctypes.c_char * _MAP_BYTES)]


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute, with its value as an integer."""

    _fields_ = [("id", ctypes.c_uint64), ("value", ctypes.c_uint64 * 8)]


class _Launch(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = [
        ("grid", ctypes.c_uint * 3),
        ("threads", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("attribute_count", ctypes.c_uint),
    ]


class CudaKernel:
    """A compiled function on one device."""

    def __init__(self, module: ctypes.c_void_p, name: str, shared_bytes: int) -> None:
        self._function = ctypes.c_void_p()
        _check(_driver().cuModuleGetFunction(ctypes.byref(self._function), module, name.encode()))
        _check(_driver().cuFuncSetAttribute(self._function, _MOST_SHARED_BYTES, shared_bytes))

    def launch(
        self,
        grid: tuple[int, int, int],
        threads: int,
        shared_bytes: int,
        arguments: Sequence[Any],
        *,
        early: bool = False,
    ) -> None:
        """Launch the kernel on torch's current stream; `threads` and `shared_bytes` (dynamic) are per program.

        Arguments are tensors or ctypes values. A kernel that is launched `early` starts as `kernels.early` describes,
        and waits for the previous one itself.
        """
        held = [
            ctypes.c_void_p(argument.data_ptr()) if isinstance(argument, Tensor) else argument for argument in arguments
        ]
        places = (ctypes.c_void_p * len(held))(*map(ctypes.addressof, held))
        attribute = _Attribute(_EARLY, (1,))
        launch = _Launch(
            grid,
            (threads, 1, 1),
            shared_bytes,
            torch.cuda.current_stream().cuda_stream,
            ctypes.pointer(attribute),
            int(early),
        )
        _check(_driver().cuLaunchKernelEx(ctypes.byref(launch), self._function, places, None))


@cache
def has_compiler() -> bool:
    """Return whether NVRTC can be loaded."""
    try:
        _nvrtc()
    except OSError:
        return False
    return True


def compile_kernel(source: str, name: str, device: torch.device, *, architecture: str, shared_bytes: int) -> CudaKernel:
    """Compile a source for a device and return its `extern "C"` function `name`.

    `architecture` is, for example, "sm_90a". `shared_bytes` is the largest dynamic shared memory of a program. Raises
    `RuntimeError` with the compiler's log if it does not compile.
    """
    with torch.cuda.device(device):
        torch.cuda.synchronize()  # creates the context that the driver calls need
        module = ctypes.c_void_p()
        _check(_driver().cuModuleLoadData(ctypes.byref(module), binary_of(source, name, architecture)))
        return CudaKernel(module, name, shared_bytes)


def tensor_map(x: Tensor, box: Sequence[int], *, swizzled: bool) -> TensorMap:
    """Describe a tensor on the device for reads in boxes of this shape; its last dim is contiguous.

    A box holds zeros beyond the tensor. A swizzled box has 128 bytes in its last dim. Strides and the address must be
    multiples of 16 bytes; a tensor has at most five dims.
    """
    size, rank = x.element_size(), x.dim()
    raw = ctypes.create_string_buffer(_MAP_BYTES + _MAP_ALIGNMENT)
    aligned = -(-ctypes.addressof(raw) // _MAP_ALIGNMENT) * _MAP_ALIGNMENT
    strides = [size * stride for stride in reversed(x.stride()[:-1])]
    _check(
        _driver().cuTensorMapEncodeTiled(
            ctypes.c_void_p(aligned),
            _MAP_TYPES[x.dtype],
            rank,
            ctypes.c_void_p(x.data_ptr()),
            (ctypes.c_uint64 * rank)(*reversed(x.shape)),
            (ctypes.c_uint64 * (rank - 1))(*strides),
            (ctypes.c_uint32 * rank)(*reversed(box)),
            (ctypes.c_uint32 * rank)(*[1] * rank),
            0,  # not interleaved
            _SWIZZLE_128_BYTES if swizzled else _SWIZZLE_NONE,
            _FETCH_256_BYTES,
            0,  # zeros beyond the tensor
        )
    )
    return TensorMap.from_buffer_copy(ctypes.string_at(aligned, _MAP_BYTES))


def load_nvrtc(path: str) -> ctypes.CDLL:
    """Load NVRTC from a file, or by its name; raises `OSError`."""
    nvrtc = ctypes.CDLL(path)
    nvrtc.nvrtcGetErrorString.restype = ctypes.c_char_p
    return nvrtc


def binary_of(source: str, name: str, architecture: str) -> bytes:
    """Compile a source to the machine code of an architecture; raises as `compile_kernel` does."""
    nvrtc = _nvrtc()
    program = ctypes.c_void_p()
    file = f"{name}.cu".encode()
    _check_compiler(nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), file, 0, None, None))
    options = (ctypes.c_char_p * 2)(f"--gpu-architecture={architecture}".encode(), b"--std=c++17")
    try:
        if nvrtc.nvrtcCompileProgram(program, len(options), options):
            compiler_log = _read(program, "nvrtcGetProgramLog").rstrip(bytes(1)).decode()
            raise RuntimeError(f"{name} does not compile: {compiler_log}")
        return _read(program, "nvrtcGetCUBIN")
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def _read(program: ctypes.c_void_p, what: str) -> bytes:
    nvrtc = _nvrtc()
    size = ctypes.c_size_t()
    _check_compiler(getattr(nvrtc, f"{what}Size")(program, ctypes.byref(size)))
    text = ctypes.create_string_buffer(size.value)
    _check_compiler(getattr(nvrtc, what)(program, text))
    return text.raw


def _check(status: int) -> None:
    if status:
        reason = ctypes.c_char_p()
        _driver().cuGetErrorString(status, ctypes.byref(reason))
        raise RuntimeError(f"CUDA: {reason.value.decode() if reason.value else status}")


def _check_compiler(status: int) -> None:
    if status:
        raise RuntimeError(f"NVRTC: {_nvrtc().nvrtcGetErrorString(status).decode()}")


@cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


@cache
def _nvrtc() -> ctypes.CDLL:
    assert torch.version.cuda is not None, "only CUDA builds of torch call this"
    return load_nvrtc(f"libnvrtc.so.{torch.version.cuda.split('.')[0]}")  # torch has already loaded it
