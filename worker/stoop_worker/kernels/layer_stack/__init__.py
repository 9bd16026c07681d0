"""All layers of a decoder for one row in one launch, which reads weights through all layers, on Hopper.

    stack_of(layers, epsilon) -> LayerStack | None           pre-norm layers with a gated MLP
    parallel_stack_of(layers, epsilon) -> LayerStack | None  layers whose attention and MLP read the same norm

pre_norm.py, parallel.py  the tensors of such layers
sizes.py                  the sizes that a source is written for
hopper.py                 compiles and launches a kernel
pre_norm.cu, parallel.cu  the kernels
ring.cu                   the slots in shared memory, and the warps that copy to them
program.cu                the memory of a program
product.cu                what programs tell each other, and the product of a weight and one row
attend.cu                 attention of one row
instructions.cu           what only a GPU can do

There is one program a multiprocessor. Four warps of each copy the program's rows of every weight, and its part of the
keys and values, to a ring of slots in shared memory. They run ahead of the other warps and wait for no other program,
so memory is read from the first layer to the last. The other warps multiply what has arrived by the row, on tensor
cores. Each product needs a whole row, so programs share the values of rows as words that others poll.

The host defines DIM, INNER, HEADS, KEY_HEADS, HEAD_DIM, FREQUENCIES (half of a head's rotated channels), PAGE,
PROGRAMS, SPLITS (ranges of positions), CHUNK (bytes of each row in a full slot), STAGES (slots of the ring), UNDER_WAY
(slots that are copied at once), TEAM (warps that share a slot), BESIDE_HEADS (bytes), FIELDS (numbers of a layer's
record), and SECONDS, after which a wait for other programs gives up. Activations are bfloat16.

Other devices, dtypes, sizes and numbers of rows have a launch for each product (`row_linear`, `rotate_attend`).
"""

from collections.abc import Sequence

from torch import Tensor

from stoop_worker.kernels.backend import uses_kernel
from stoop_worker.kernels.hopper import is_hopper
from stoop_worker.kernels.layer_stack.hopper import LayerStack
from stoop_worker.kernels.layer_stack.parallel import ParallelLayer, ParallelLayers
from stoop_worker.kernels.layer_stack.pre_norm import Layer, PreNormLayers

__all__ = ["Layer", "LayerStack", "ParallelLayer", "parallel_stack_of", "stack_of"]


def stack_of(layers: Sequence[Layer], epsilon: float) -> LayerStack | None:
    """Return the layers for steps of one row; None if no kernel here takes their weights."""
    return _stack(PreNormLayers(tuple(layers), epsilon), layers[0].norm)


def parallel_stack_of(layers: Sequence[ParallelLayer], epsilon: float) -> LayerStack | None:
    """Return the layers for steps of one row; None if no kernel here takes their weights."""
    return _stack(ParallelLayers(tuple(layers), epsilon), layers[0].ln.weight)


def _stack(layers: PreNormLayers | ParallelLayers, like: Tensor) -> LayerStack | None:
    suits = is_hopper(layers.device) and uses_kernel(like) and layers.are_stored_well()
    return LayerStack(layers) if suits else None
