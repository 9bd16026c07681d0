"""The gated activation between the two products of an MLP with SwiGLU or GeGLU.

    swiglu(gate_up_TN) -> out_TF
    geglu(gate_up_TN) -> out_TF

T rows, F columns of the second product's input, N = 2 F: a row holds its F gates, then its F ups. Rows may be strided,
a row's columns are contiguous. The dtype is float32, float16 or bfloat16.
"""

from torch import Tensor

from stoop_worker.kernels.backend import uses_kernel
from stoop_worker.kernels.swiglu import reference

__all__ = ["geglu", "swiglu"]


def swiglu(gate_up_TN: Tensor) -> Tensor:
    """Return silu(gate) * up of every row; see `reference.swiglu`."""
    if uses_kernel(gate_up_TN):
        from stoop_worker.kernels.swiglu.kernel import swiglu as launch

        return launch(gate_up_TN)
    return reference.swiglu(gate_up_TN)


def geglu(gate_up_TN: Tensor) -> Tensor:
    """Return gelu(gate) * up of every row, with the tanh approximation; see `reference.geglu`."""
    if uses_kernel(gate_up_TN):
        from stoop_worker.kernels.swiglu.kernel import geglu as launch

        return launch(gate_up_TN)
    return reference.geglu(gate_up_TN)
