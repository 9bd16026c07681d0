"""Decodes on a CPU that read the pages where they lie. Letters as in `reference`; G = H / K.

The reference copies the pages of all sequences side by side, padded to the longest. For a long context that takes
several times as long as the attention.
"""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from stoop_worker.kernels.paged_attention.layout import PagedLayout

__all__ = ["decode", "takes"]

_LEAST_CONTEXT = 1 << 16  # values of keys; a shorter one is copied in less time than a sequence's calls take
_DTYPES = (torch.float32, torch.float64)

_Run = tuple[int, int]
"""The first slot of neighbouring pages, and the slot after the last position in them."""


def takes(q_BHD: Tensor, pool: Tensor, layout: PagedLayout) -> bool:
    """Return whether `decode` runs and is worth it."""
    if not q_BHD.is_cpu or q_BHD.dtype not in _DTYPES or pool.dtype != q_BHD.dtype:
        return False
    return layout.page_table_BP.shape[1] * layout.page_size * pool[0, 0, 0].numel() >= _LEAST_CONTEXT


def decode(q_BHD: Tensor, pool: Tensor, layout: PagedLayout, *, scale: float, out_TM: Tensor | None = None) -> Tensor:
    """Let one row of each sequence attend to its positions; see `reference.paged_attention`."""
    rows, heads, head_dim = q_BHD.shape
    key_heads = pool.shape[3]
    keys_SKD, values_SKD = pool.view(2, -1, key_heads, head_dim)
    q_BKGD = (q_BHD * scale).view(rows, key_heads, -1, head_dim)
    o_BC = q_BHD.new_zeros(rows, heads * head_dim) if out_TM is None else out_TM[:, : heads * head_dim]
    for row, runs in enumerate(_runs(layout)):
        if runs:
            keys, values = ([x_SKD[start:end] for start, end in runs] for x_SKD in (keys_SKD, values_SKD))
            o_BC[row] = _attend(q_BKGD[row], keys, values).flatten()
        else:
            o_BC[row] = 0
    return o_BC.view(rows, heads, head_dim)


def _attend(q_KGD: Tensor, keys: list[Tensor], values: list[Tensor]) -> Tensor:
    shares_KGS = torch.cat([q_KGD @ k_RKD.permute(1, 2, 0) for k_RKD in keys], dim=-1).softmax(dim=-1)
    parts = torch.split(shares_KGS, [len(v_RKD) for v_RKD in values], dim=-1)
    products = [share_KGR @ v_RKD.transpose(0, 1) for share_KGR, v_RKD in zip(parts, values, strict=True)]
    return torch.stack(products).sum(dim=0) if len(products) > 1 else products[0]


def _runs(layout: PagedLayout) -> Iterator[list[_Run]]:
    """Yield the runs of each sequence; a padding row has none."""
    size, table = layout.page_size, layout.page_table_BP.numpy()
    neighbours = np.diff(table, axis=1) == 1
    for pages, joined, context in zip(table, neighbours, layout.context_lens_B.tolist(), strict=True):
        used = -(-context // size)
        starts = [0, *(np.flatnonzero(~joined[: max(0, used - 1)]) + 1).tolist()] if context else []
        ends = [*starts[1:], used]
        slots = [int(pages[start]) * size for start in starts]
        yield [
            (slot, slot + min(end * size, context) - start * size)
            for slot, start, end in zip(slots, starts, ends, strict=False)
        ]
