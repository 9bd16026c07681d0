"""A pre-norm decoder over the KV cache. T positions, R rows that are wanted, C model dim, H heads, D head dim."""

from torch import Tensor
from torch.nn.functional import linear

from stoop_worker.engine.tensors import KVView
from stoop_worker.kernels.paged_attention import paged_attention
from stoop_worker.kernels.rms_norm import add_rms_norm, rms_norm
from stoop_worker.kernels.rotate_write import Places, rotate_write
from stoop_worker.kernels.swiglu import swiglu
from tests.engine.toy_family.sizes import EPSILON, HEAD_DIM
from tests.engine.toy_family.weights import Weights

__all__ = ["forward"]


def forward(x_TC: Tensor, kv: KVView, places: Places, weights: Weights, wanted_R: Tensor | None) -> Tensor:
    """Return the residual stream after the last block."""
    for layer, block in enumerate(weights.blocks):
        kv.on_progress()
        pool = kv.pool[layer]
        q_THD = rotate_write(linear(rms_norm(x_TC, block.norm1, epsilon=EPSILON), block.qkv), places, pool)
        attended_TC = paged_attention(q_THD, pool, kv.layout, scale=HEAD_DIM**-0.5).flatten(1)
        x_TC, normed_TC = add_rms_norm(x_TC, (linear(attended_TC, block.out),), block.norm2, epsilon=EPSILON)
        x_TC = x_TC + linear(swiglu(linear(normed_TC, block.gate_up)), block.down)
    return x_TC if wanted_R is None else x_TC[wanted_R]
