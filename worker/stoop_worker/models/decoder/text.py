"""A pre-norm decoder over the KV cache. T positions, R rows that are wanted, C model dim, H heads, D head dim."""

from collections.abc import Sequence

from torch import Tensor

from stoop_worker.engine.tensors import KVView
from stoop_worker.kernels.paged_attention import paged_attention
from stoop_worker.kernels.rms_norm import add_rms_norm, rms_norm
from stoop_worker.kernels.rotate_write import Places, rotate_write
from stoop_worker.kernels.row_linear import RowNorm, row_linear, takes
from stoop_worker.kernels.skinny_linear import linear
from stoop_worker.kernels.swiglu import swiglu
from stoop_worker.models.decoder.weights import DecoderWeights

__all__ = ["forward", "logits"]


def forward(
    x_TC: Tensor,
    kv: KVView,
    places: Places,
    weights: DecoderWeights,
    *,
    wanted_R: Tensor | None = None,
    deep: Sequence[Tensor] = (),
) -> Tensor:
    """Return the residual stream after the last block (no norm), hidden_TC; with `wanted_R` only these rows of it.

    `deep` are features (T, C) that are added after the first blocks, one after each.
    """
    epsilon = weights.epsilon
    normed_TC = rms_norm(x_TC, weights.blocks[0].norm, epsilon=epsilon)
    for layer, block in enumerate(weights.blocks):
        kv.on_progress()
        pool = kv.pool[layer]
        q_THD = rotate_write(linear(normed_TC, block.qkv), places, pool, norms=block.head_norms)
        attended_TC = paged_attention(q_THD, pool, kv.layout, scale=q_THD.shape[2] ** -0.5).flatten(1)
        last = layer + 1 == len(weights.blocks)
        if last and wanted_R is not None:
            # only the other rows' keys and values are needed from here on
            x_TC, attended_TC = x_TC[wanted_R], attended_TC[wanted_R]
        x_TC, normed_TC = add_rms_norm(x_TC, (linear(attended_TC, block.out),), block.mlp_norm, epsilon=epsilon)
        added = (linear(swiglu(linear(normed_TC, block.gate_up)), block.down), *deep[layer : layer + 1])
        if last:
            break
        x_TC, normed_TC = add_rms_norm(x_TC, added, weights.blocks[layer + 1].norm, epsilon=epsilon)
    # the last block has features only in models with fewer blocks than any real one
    features = () if len(deep) < len(weights.blocks) else (deep[-1] if wanted_R is None else deep[-1][wanted_R],)
    return sum((added[0], *features), start=x_TC)


def logits(hidden_RC: Tensor, weights: DecoderWeights) -> Tensor:
    """Return logits_RV."""
    if takes(hidden_RC, weights.head):
        return row_linear(hidden_RC, weights.head, norm=RowNorm(weights.norm, weights.epsilon))
    return linear(rms_norm(hidden_RC, weights.norm, epsilon=weights.epsilon), weights.head)
