"""The text model over a paged KV pool: the decoder of `text`, with rotation, cache and attention in few passes.

T tokens packed over sequences, C model dim, H heads, D head dim, S positions of the longest context, F frequencies.
"""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from worker.kernels.paged_attention import PagedLayout, paged_attention
from worker.kernels.rotate_write import rotate_and_write
from worker.model.layers import add_layer_norm, layer_norm_for, linear, mlp, select
from worker.model.weights import TextWeights

__all__ = ["Pages", "forward"]


@dataclass(frozen=True, slots=True)
class Pages:
    """Where the tokens of a batch are kept: `pool` is (layers, 2, pages, page size, H, D).

    `rotations_SF2` holds cosine and sine of every position; `mark` is called before each layer.
    """

    positions_T: Tensor
    slots_T: Tensor
    layout: PagedLayout
    pool: Tensor
    rotations_SF2: Tensor
    mark: Callable[[], None]

    def attend(self, layer: int, qkv_TC: Tensor, heads: int) -> Tensor:
        """Keep the tokens' keys and values, and attend; returns (T, H * D)."""
        pool = self.pool[layer]
        q_THD = rotate_and_write(qkv_TC, self.positions_T, self.rotations_SF2, pool, self.slots_T, heads=heads)
        return paged_attention(q_THD, pool, self.layout).flatten(1)


def forward(x_TC: Tensor, pages: Pages, weights: TextWeights, heads: int, *, wanted_R: Tensor | None = None) -> Tensor:
    """Run the decoder; returns hidden_TC, the residual stream as it is after the last block (no norm).

    With `wanted_R` only these rows are returned, hidden_RC.
    """
    rows = layer_norm_for(weights.blocks[0].attn.qkv, x_TC, weights.blocks[0].ln)
    for layer, block in enumerate(weights.blocks):
        pages.mark()
        last = layer + 1 == len(weights.blocks)
        attended_TC = pages.attend(layer, linear(rows, block.attn.qkv), heads)
        if last and wanted_R is not None:
            # of the others only keys and values are of use from here on
            x_TC, attended_TC, rows = x_TC[wanted_R], attended_TC[wanted_R], select(rows, wanted_R)
        added = linear(attended_TC, block.attn.proj), mlp(rows, block.mlp)
        if last:
            break
        following = weights.blocks[layer + 1]
        x_TC, rows = add_layer_norm(x_TC, added, following.ln, reader=following.attn.qkv)
    # the two sums are in this order, for bfloat16 rounds each
    return x_TC + added[0] + added[1]
