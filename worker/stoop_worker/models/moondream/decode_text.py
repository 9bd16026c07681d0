"""A decode step of the text model with half as many matrix products, each of twice the size.

Both parts of a block read the same norm and both end in the same sum. So the rows of qkv and fc1 make one product, and
the columns of proj and fc2 another: fewer and longer reads of the weights, which is all that a decode does.

B rows, C model dim, F inner dim of the MLP, H heads, D head dim, S parts of a sum.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from stoop_worker.engine.tensors import KVView
from stoop_worker.kernels.rotate_attend import rotate_attend
from stoop_worker.kernels.skinny_linear import add_parts, add_parts_layer_norm, skinny_linear, split_linear
from stoop_worker.models.blocks.layers import MLP, AnyLinear, LayerNorm, Linear, layer_norm
from stoop_worker.models.moondream.weights import TextBlock, TextWeights

__all__ = ["MergedBlock", "merge", "step"]


@dataclass(frozen=True, slots=True)
class MergedBlock:
    """`first` makes qkv and the MLP's inner values, (3C + F, C); `second` takes attention and MLP, (C, C + F)."""

    ln: LayerNorm
    first: Linear
    second: Linear


def merge(weights: TextWeights) -> tuple[MergedBlock, ...]:
    """Lay each block's weights side by side; the tensors in `weights` become views of them: nothing is held twice."""
    return tuple(_merge(block) for block in weights.blocks)


def step(x_BC: Tensor, kv: KVView, blocks: tuple[MergedBlock, ...], rotations_SF2: Tensor) -> Tensor:
    """Run the decoder on one position a sequence; returns hidden_BC like `text.forward`, rounded less often."""
    inner = blocks[0].first.weight.shape[0] - 3 * x_BC.shape[1]
    places = kv.positions_T, kv.slots_T, rotations_SF2
    # launched when all before has ended: what the step is given may be read from here on by kernels that start early
    normed_BC = layer_norm(x_BC, blocks[0].ln)
    for layer, block in enumerate(blocks):
        joined_BM = x_BC.new_empty(x_BC.shape[0], x_BC.shape[1] + inner)
        made_BN = skinny_linear(normed_BC, block.first.weight, block.first.bias)
        rotate_attend(made_BN, places, kv.pool[layer], kv.layout, out_BM=joined_BM)
        parts_SBC = split_linear(joined_BM, block.second.weight)
        if layer + 1 == len(blocks):
            break
        norm = blocks[layer + 1].ln
        x_BC, normed_BC = add_parts_layer_norm(x_BC, parts_SBC, block.second.bias, norm.weight, norm.bias)
    return add_parts(x_BC, parts_SBC, blocks[-1].second.bias)


def _merge(block: TextBlock) -> MergedBlock:
    assert isinstance(block.mlp, MLP), "experts are not merged"
    qkv, proj, fc1, fc2 = map(_plain, (block.attn.qkv, block.attn.proj, block.mlp.fc1, block.mlp.fc2))
    first = Linear(torch.cat((qkv.weight, fc1.weight)), torch.cat((qkv.bias, fc1.bias)))
    second = Linear(torch.cat((proj.weight, fc2.weight), dim=1), proj.bias + fc2.bias)
    rows, columns = qkv.weight.shape[0], proj.weight.shape[1]
    for part, whole in (
        (qkv.weight, first.weight[:rows]),
        (fc1.weight, first.weight[rows:]),
        (proj.weight, second.weight[:, :columns]),
        (fc2.weight, second.weight[:, columns:]),
    ):
        part.set_(whole)  # type: ignore[call-overload]
    return MergedBlock(block.ln, first, second)


def _plain(linear: AnyLinear) -> Linear:
    assert isinstance(linear, Linear), "a decode reads weights as they came"
    return linear
