"""All layers of a pre-norm decoder for one row in one launch, which reads weights through all layers, on Hopper.

    stack_of(layers, epsilon) -> LayerStack | None

layer.py         a layer's tensors
sizes.py         the sizes that a source is written for
hopper.py        compiles and launches the kernel
stack.cu         the kernel, with its parts in ring.cu, product.cu and attend.cu
instructions.cu  what only a GPU can do

Other devices, dtypes, sizes and numbers of rows have a launch for each product (`row_linear`, `rotate_attend`).
"""

from collections.abc import Sequence

from stoop_worker.kernels.backend import uses_kernel
from stoop_worker.kernels.hopper import is_hopper
from stoop_worker.kernels.layer_stack.hopper import LayerStack, are_stored_well
from stoop_worker.kernels.layer_stack.layer import Layer

__all__ = ["Layer", "LayerStack", "stack_of"]


def stack_of(layers: Sequence[Layer], epsilon: float) -> "LayerStack | None":
    """Return the layers for steps of one row; None if no kernel here takes their weights."""
    suits = is_hopper(layers[0].norm.device) and uses_kernel(layers[0].norm) and are_stored_well(layers)
    return LayerStack(layers, epsilon) if suits else None
