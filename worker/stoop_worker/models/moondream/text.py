"""The text model over the KV cache, with rotation, cache and attention in few passes.

T tokens packed over sequences, B rows, C model dim, H heads, D head dim, V vocabulary, S positions of the longest
context, F frequencies, N columns of q, k and v.
"""

from dataclasses import replace

from torch import Tensor
from torch.nn import functional

from stoop_worker.engine.tensors import KVView
from stoop_worker.kernels.paged_attention import paged_attention
from stoop_worker.kernels.rotate_write import Places, rotate_write
from stoop_worker.kernels.row_linear import row_linear, takes
from stoop_worker.models.blocks.layers import add_layer_norm, layer_norm, layer_norm_for, linear, select
from stoop_worker.models.moondream.lora import NO_CORRECTIONS, Corrections
from stoop_worker.models.moondream.tau import heat_of
from stoop_worker.models.moondream.weights import TextWeights

__all__ = ["embed", "forward", "logits"]


def forward(
    x_TC: Tensor,
    kv: KVView,
    weights: TextWeights,
    rotations_SF2: Tensor,
    *,
    wanted_R: Tensor | None = None,
    corrections: Corrections = NO_CORRECTIONS,
) -> Tensor:
    """Run the decoder; returns hidden_TC, the residual stream as it is after the last block (no norm).

    `rotations_SF2` holds cosine and sine of every position. With `wanted_R` only these rows are returned, hidden_RC.
    `corrections` are those of the rows' adapters.
    """
    rows = layer_norm_for(weights.blocks[0].attn.qkv, x_TC, weights.blocks[0].ln)
    places = Places(kv.positions_T, rotations_SF2, kv.slots_T)
    for layer, block in enumerate(weights.blocks):
        kv.on_progress()
        last = layer + 1 == len(weights.blocks)
        qkv_TN = corrections.correct(layer, "qkv", linear(rows, block.attn.qkv), rows)
        attended_TC = _attend(kv, layer, qkv_TN, replace(places, heat=heat_of(qkv_TN, block.attn.tau)))
        if last and wanted_R is not None:
            # only the other rows' keys and values are needed from here on
            x_TC, attended_TC, rows = x_TC[wanted_R], attended_TC[wanted_R], select(rows, wanted_R)
            corrections = corrections.at(wanted_R)
        # adapters were trained this way: the correction of proj reads the block's norm, not the heads' outputs
        projected_TC = corrections.correct(layer, "proj", linear(attended_TC, block.attn.proj), rows)
        added = projected_TC, corrections.feed_forward(layer, rows, block.mlp)
        if last:
            break
        following = weights.blocks[layer + 1]
        x_TC, rows = add_layer_norm(x_TC, added, following.ln, reader=following.attn.qkv)
    # the order of the two sums matters, because bfloat16 rounds each
    return x_TC + added[0] + added[1]


def embed(ids_T: Tensor, weights: TextWeights) -> Tensor:
    """Return the tokens' embeddings x_TC."""
    return functional.embedding(ids_T, weights.wte)


def logits(hidden_BC: Tensor, weights: TextWeights) -> Tensor:
    """Return logits_BV of the rows' next tokens."""
    normed_BC, head = layer_norm(hidden_BC, weights.post_ln), weights.lm_head
    if takes(normed_BC, head.weight):
        return row_linear(normed_BC, head.weight, added_to_BN=head.bias[None])
    return linear(normed_BC, head)


def _attend(kv: KVView, layer: int, qkv_TN: Tensor, places: Places) -> Tensor:
    """Keep the tokens' keys and values, and attend; returns (T, H * D)."""
    q_THD = rotate_write(qkv_TN, places, kv.pool[layer])
    return paged_attention(q_THD, kv.pool[layer], kv.layout).flatten(1)
