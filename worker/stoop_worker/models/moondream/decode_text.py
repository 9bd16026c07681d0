"""A decode step of the text model with half as many matrix products, each of twice the size.

Both parts of a block read the same norm and both end in the same sum. So the rows of qkv and fc1 make one product, and
the columns of proj and fc2 another: fewer and longer reads of the weights, which take nearly all of a decode's time. In
a block with experts, the router joins the first product, and the sum adds up the experts. Adapters correct the first
product in place, and the second by one more term of the sum.

B rows, C model dim, F inner dim of the MLP, E experts, H heads, D head dim, S parts of a sum.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from enum import Enum, auto

import torch
from torch import Tensor

from stoop_worker.engine.tensors import KVView
from stoop_worker.kernels import moe
from stoop_worker.kernels.branch import branch, join
from stoop_worker.kernels.layer_norm.reference import EPSILON
from stoop_worker.kernels.layer_stack import LayerStack, parallel_stack_of
from stoop_worker.kernels.rotate_attend import rotate_attend
from stoop_worker.kernels.rotate_write import Places
from stoop_worker.kernels.skinny_linear import Others, add_parts, add_parts_layer_norm, skinny_linear, split_linear
from stoop_worker.models.blocks.layers import MLP, AnyLinear, LayerNorm, Linear, layer_norm
from stoop_worker.models.moondream.decode_lora import NO_ADAPTERS, RowAdapters, Thin
from stoop_worker.models.moondream.tau import heat_of
from stoop_worker.models.moondream.weights import MoE, Tau, TextBlock, TextWeights

__all__ = ["MOST_BESIDE", "MergedBlock", "in_one_launch", "joined_by_prefills", "merge", "stack_of", "step"]

MOST_BESIDE = 64
"""The most rows whose attention runs beside their experts, and whose corrections beside the products."""

_LEAST_IN_LINE = 48  # with fewer rows, the library's first product is faster than one that starts early
_FEW_JOINED, _ALL_JOINED = 8, 1 << 16
_MULTIPLE = 128  # of the first product's rows, so that the kernel's blocks divide them


@dataclass(frozen=True, slots=True)
class MergedBlock:
    """`first` makes qkv and the MLP's inner values, (3C + F, C); `second` takes attention and MLP, (C, C + F).

    With experts, `first` makes qkv and the router's logits, then zeros up to a round number of rows, and `second` takes
    attention alone.
    """

    ln: LayerNorm
    first: Linear
    second: Linear
    tau: Tau | None = None
    experts: MoE | None = None


def merge(weights: TextWeights) -> tuple[MergedBlock, ...]:
    """Lay each block's weights side by side; the tensors in `weights` become views of them, so memory holds nothing
    twice.
    """
    return tuple(_merge(block) for block in weights.blocks)


def stack_of(blocks: Sequence[MergedBlock]) -> LayerStack | None:
    """Return the layers for steps of one row in one launch; None if no kernel takes them."""
    plain = all(block.experts is None and block.tau is None for block in blocks)
    return parallel_stack_of(blocks, EPSILON) if blocks and plain else None


def in_one_launch(x_BC: Tensor, kv: KVView, stack: LayerStack | None, rotations_SF2: Tensor) -> Tensor | None:
    """Run `stack` on one row without adapters, as `step` does; return None where no kernel takes the step."""
    if stack is None:
        return None
    places = Places(kv.positions_T, rotations_SF2, kv.slots_T)
    return stack.run_if_taken(x_BC, places, kv.pool, kv.layout)


def joined_by_prefills(weights: TextWeights) -> int:
    """Return the most decodes that a prefill with images should compute as rows of its own."""
    experts = [block.mlp for block in weights.blocks if isinstance(block.mlp, MoE)]
    if not experts:
        return _FEW_JOINED  # for more, a prefill's attention would take longer than a decode's
    # a decode alone reads most experts, and a prefill reads them all; with experts in float8 it is less exact
    return 0 if any(each.up.scales_EO is not None for each in experts) else _ALL_JOINED


def step(
    x_BC: Tensor,
    kv: KVView,
    blocks: tuple[MergedBlock, ...],
    rotations_SF2: Tensor,
    *,
    adapters: RowAdapters = NO_ADAPTERS,
    most_beside: int = MOST_BESIDE,
) -> Tensor:
    """Run the decoder on one position a sequence; returns hidden_BC like `text.forward`, rounded less often.

    On a GPU, up to `most_beside` rows attend while their experts compute. In blocks without experts,
    adapters' corrections of up to `most_beside` rows are computed while the products read their weights.
    """
    aside = x_BC.is_cuda and len(x_BC) <= most_beside
    adapters = adapters.grouped(x_BC)
    # launched when all before has ended: what the step is given may be read from here on by kernels that start early
    normed_BC = layer_norm(x_BC, blocks[0].ln)
    for layer, block in enumerate(blocks):
        order = _order(layer, block, adapters, rows=len(x_BC), aside=aside)
        corrects_aside = order is _Order.CORRECTS_ASIDE
        made_BN, thin = _first(layer, block, normed_BC, adapters, order)
        with branch(x_BC.device) if order is _Order.ATTENDS_ASIDE else nullcontext():
            joined_BM = _attend(made_BN, kv, layer, block, rotations_SF2, order)
            with branch(x_BC.device) if corrects_aside else nullcontext():
                corrections_BC = adapters.second(layer, joined_BM, x_BC.shape[1], thin, plainly=corrects_aside)
            parts_SBC = split_linear(joined_BM, block.second.weight, in_line=order is _Order.IN_LINE)
        experts = _experts(normed_BC, made_BN, block.experts, adapters.of_experts(layer))
        others = Others(experts, corrections_BC, joined=order in (_Order.ATTENDS_ASIDE, _Order.CORRECTS_ASIDE))
        if others.joined:
            join(x_BC.device)
        if layer + 1 == len(blocks):
            break
        norm, bias_C = blocks[layer + 1].ln, block.second.bias
        x_BC, normed_BC = add_parts_layer_norm(x_BC, parts_SBC, bias_C, norm.weight, norm.bias, others=others)
    return add_parts(x_BC, parts_SBC, blocks[-1].second.bias, others=others)


class _Order(Enum):
    """How the kernels of a layer follow each other."""

    APART = auto()  # one after the other; those of few rows start early
    IN_LINE = auto()  # one after the other; those of up to 64 rows start early
    ATTENDS_ASIDE = auto()  # attention runs beside the experts
    CORRECTS_ASIDE = auto()  # the corrections run beside the products


def _order(layer: int, block: MergedBlock, adapters: RowAdapters, *, rows: int, aside: bool) -> _Order:
    if block.experts is not None:
        return _Order.ATTENDS_ASIDE if aside else _Order.APART
    if adapters.corrects(layer):
        return _Order.CORRECTS_ASIDE if aside else _Order.APART
    return _Order.IN_LINE if rows >= _LEAST_IN_LINE else _Order.APART


def _first(
    layer: int, block: MergedBlock, normed_BC: Tensor, adapters: RowAdapters, order: _Order
) -> tuple[Tensor, Thin]:
    """Return the corrected first product, and the thin values of all layers that read the norm."""
    branched = order is _Order.CORRECTS_ASIDE
    with branch(normed_BC.device) if branched else nullcontext():
        thin = adapters.first_thin(layer, normed_BC, plainly=branched)
    made_BN = skinny_linear(normed_BC, block.first.weight, block.first.bias, in_line=order is _Order.IN_LINE)
    if branched:
        join(normed_BC.device)
    adapters.correct_first(layer, made_BN, normed_BC.shape[1], thin, plainly=branched)
    return made_BN, thin


def _attend(
    made_BN: Tensor, kv: KVView, layer: int, block: MergedBlock, rotations_SF2: Tensor, order: _Order
) -> Tensor:
    """Return the second product's input: the heads' outputs, then the MLP's inner values if there are no experts."""
    width, wanted = block.second.weight.shape
    qkv_BN = made_BN[:, : 3 * width]
    heat = heat_of(qkv_BN, block.tau, plainly=order is _Order.ATTENDS_ASIDE)
    places = Places(kv.positions_T, rotations_SF2, kv.slots_T, heat=heat)
    joined_BM = made_BN.new_empty(made_BN.shape[0], wanted)
    rotate_attend(
        made_BN[:, : 2 * width + wanted],
        places,
        kv.pool[layer],
        kv.layout,
        out_BM=joined_BM,
        in_line=order is _Order.IN_LINE,
    )
    return joined_BM


def _experts(
    normed_BC: Tensor, made_BN: Tensor, experts: MoE | None, adapter: moe.ExpertAdapter | None
) -> moe.ExpertOutputs | None:
    """Return the outputs of the experts that the first product's logits choose; None without experts."""
    if experts is None:
        return None
    start = 3 * normed_BC.shape[1]
    logits_BE = made_BN[:, start : start + experts.router.weight.shape[0]]
    return moe.expert_outputs(normed_BC, moe.route(logits_BE, experts.chosen), experts.up, experts.down, adapter)


def _merge(block: TextBlock) -> MergedBlock:
    qkv, proj = _plain(block.attn.qkv), _plain(block.attn.proj)
    if isinstance(block.mlp, MLP):
        fc1, fc2 = _plain(block.mlp.fc1), _plain(block.mlp.fc2)
        second = Linear(torch.cat((proj.weight, fc2.weight), dim=1), proj.bias + fc2.bias)
        columns = proj.weight.shape[1]
        proj.weight.set_(second.weight[:, :columns])  # type: ignore[call-overload]
        fc2.weight.set_(second.weight[:, columns:])  # type: ignore[call-overload]
        return MergedBlock(block.ln, _stack(qkv, fc1), second, block.attn.tau)
    return MergedBlock(block.ln, _stack(qkv, block.mlp.router), proj, block.attn.tau, block.mlp)


def _stack(above: Linear, below: Linear) -> Linear:
    """Return both as one product, with zeros below up to a multiple; their weights become views of its weight."""
    rows, more = above.weight.shape[0], below.weight.shape[0]
    zeros = -(rows + more) % _MULTIPLE
    weight = torch.cat((above.weight, below.weight, below.weight.new_zeros(zeros, below.weight.shape[1])))
    bias = torch.cat((above.bias, below.bias, below.bias.new_zeros(zeros)))
    above.weight.set_(weight[:rows])  # type: ignore[call-overload]
    below.weight.set_(weight[rows : rows + more])  # type: ignore[call-overload]
    return Linear(weight, bias)


def _plain(linear: AnyLinear) -> Linear:
    assert isinstance(linear, Linear), "a decode reads weights as they came"
    return linear
