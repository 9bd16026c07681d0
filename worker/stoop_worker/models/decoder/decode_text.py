"""A decode step of a pre-norm decoder in fewer launches: norms, gating and sums are part of the neighbouring products.

A step of one row has five launches a layer, or with a `LayerStack` one for all layers. A step of several rows computes
each norm once, with the sum before it.
B rows, one a sequence; C model dim, F inner dim of the MLP.
"""

import torch
from torch import Tensor

from stoop_worker.engine.tensors import KVView
from stoop_worker.kernels.backend import has_triton
from stoop_worker.kernels.layer_stack import LayerStack
from stoop_worker.kernels.paged_attention import HEAD_DIMS
from stoop_worker.kernels.rms_norm import rms_norm
from stoop_worker.kernels.rotate_attend import MOST_GROUP_ROWS, rotate_attend_groups
from stoop_worker.kernels.rotate_write import Places
from stoop_worker.kernels.row_linear import RowNorm, row_linear, takes
from stoop_worker.kernels.skinny_linear import (
    add_parts,
    add_parts_rms_norm,
    gated_mlp,
    linear,
    rows_dtype,
    split_linear,
)
from stoop_worker.models.decoder.weights import DecoderWeights

__all__ = ["runs_well", "step"]


def runs_well(device: torch.device, dtype: torch.dtype, head_dim: int) -> bool:
    """Return whether the step's kernels run on `device`, for activations of `dtype`."""
    return device.type == "cuda" and has_triton() and dtype.itemsize == 2 and head_dim in HEAD_DIMS


def step(x_BC: Tensor, kv: KVView, places: Places, weights: DecoderWeights, stack: LayerStack | None = None) -> Tensor:
    """Run the decoder on one position a sequence; returns hidden_BC like `text.forward`, rounded less often.

    `stack` are the same layers for steps of one row, where a kernel takes them.

    The first launch starts when all before has ended, so later ones that start early may read the step's inputs.
    """
    found_BC = None if stack is None else stack.run_if_taken(x_BC, places, kv.pool, kv.layout)
    if found_BC is not None:
        return found_BC
    return (_one_row if _suits_one_row(x_BC, weights) else _several_rows)(x_BC, kv, places, weights)


def _suits_one_row(x_BC: Tensor, weights: DecoderWeights) -> bool:
    """Return whether there is one row, and on a GPU a kernel for each of its products."""
    block = weights.blocks[0]
    products = block.qkv, block.out, block.gate_up, block.down
    return len(x_BC) == 1 and (not x_BC.is_cuda or all(takes(x_BC, weight) for weight in products))


def _one_row(x_1C: Tensor, kv: KVView, places: Places, weights: DecoderWeights) -> Tensor:
    for layer, block in enumerate(weights.blocks):
        qkv_1N = row_linear(x_1C, block.qkv, norm=RowNorm(block.norm, weights.epsilon))
        attended_1M = rotate_attend_groups(qkv_1N, places, kv.pool[layer], kv.layout, norms=block.head_norms)
        x_1C = row_linear(attended_1M, block.out, added_to_BN=x_1C)
        inner_1F = row_linear(x_1C, block.gate_up, norm=RowNorm(block.mlp_norm, weights.epsilon), gated=True)
        x_1C = row_linear(inner_1F, block.down, added_to_BN=x_1C)
    return x_1C


def _several_rows(x_BC: Tensor, kv: KVView, places: Places, weights: DecoderWeights) -> Tensor:
    first, epsilon = weights.blocks[0], weights.epsilon
    dtype = x_BC.dtype
    if kv.layout.planned is None and len(x_BC) > MOST_GROUP_ROWS:  # otherwise attention returns rows in x's dtype
        dtype = rows_dtype(x_BC, first.qkv, first.out, first.gate_up, first.down)
    normed_BC = rms_norm(x_BC, first.norm, epsilon=epsilon, dtype=dtype)
    for layer, block in enumerate(weights.blocks):
        qkv_BN = linear(normed_BC, block.qkv, dtype=x_BC.dtype, in_line=True)
        attended_BM = rotate_attend_groups(
            qkv_BN, places, kv.pool[layer], kv.layout, norms=block.head_norms, dtype=dtype
        )
        parts_SBC = split_linear(attended_BM, block.out, in_line=True)
        x_BC, normed_BC = add_parts_rms_norm(x_BC, parts_SBC, block.mlp_norm, epsilon=epsilon, dtype=dtype)
        parts_SBC = gated_mlp(normed_BC, block.gate_up, block.down)
        if layer + 1 == len(weights.blocks):
            break
        norm = weights.blocks[layer + 1].norm
        x_BC, normed_BC = add_parts_rms_norm(x_BC, parts_SBC, norm, epsilon=epsilon, dtype=dtype)
    return add_parts(x_BC, parts_SBC)
