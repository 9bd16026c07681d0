"""Shared parts of the kernels in CUDA C++ for Hopper (compute capability 9.0).

source.py    writes a kernel's source, with the products that it needs
compiler.py  compiles the source with NVRTC, and launches the kernel
fallback.py  gives up a kernel that does not compile, where a slower one can take its place
hopper.cu    barriers, the copy engine and the products
softmax.cu   the running softmax
"""

from stoop_worker.kernels.hopper.compiler import CudaKernel, compile_kernel, tensor_map
from stoop_worker.kernels.hopper.fallback import Unusable, given_up, is_usable, try_to_compile
from stoop_worker.kernels.hopper.source import HALVES, Shape, defined, is_hopper, multiprocessors, products_of, source

__all__ = [
    "HALVES",
    "CudaKernel",
    "Shape",
    "Unusable",
    "compile_kernel",
    "defined",
    "given_up",
    "is_hopper",
    "is_usable",
    "multiprocessors",
    "products_of",
    "source",
    "tensor_map",
    "try_to_compile",
]
