"""What kernels in CUDA C++ for Hopper (compute capability 9.0) have in common."""

from worker.kernels.hopper.compiler import CudaKernel, compile_kernel, tensor_map
from worker.kernels.hopper.source import HALVES, Shape, is_hopper, source

__all__ = ["HALVES", "CudaKernel", "Shape", "compile_kernel", "is_hopper", "source", "tensor_map"]
