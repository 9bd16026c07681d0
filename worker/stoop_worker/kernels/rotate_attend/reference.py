"""The steps between the two products of a decode's layer, one after another.

B rows, one a sequence; H query heads, K key heads, D head dim, C = H D, F frequencies, S positions, M columns of the
second product's input, N = (H + 2 K) D. One layer's pool is (2, pages, page size, K, D).
"""

import torch
from torch import Tensor

from stoop_worker.kernels.paged_attention import PagedLayout, paged_attention
from stoop_worker.kernels.rotate_write import HeadNorms, Places, rotate_write, rotate_write_gelu

__all__ = ["rotate_attend", "rotate_attend_groups"]


def rotate_attend(
    made_BN: Tensor,
    places: Places,
    pool: Tensor,
    layout: PagedLayout,
    *,
    out_BM: Tensor,
    in_line: bool = False,
) -> None:
    """Fill the first C columns of `out_BM` with the heads' outputs, the others with the GELU of the MLP's values.

    Row b is the last position of sequence b: its keys and values are stored as by `rotate_write_gelu`, and it attends
    to them too.
    """
    q_BHD = rotate_write_gelu(made_BN, places, pool, out_TM=out_BM, in_line=in_line)
    paged_attention(q_BHD, pool, layout, out_TM=out_BM)


def rotate_attend_groups(
    qkv_BN: Tensor,
    places: Places,
    pool: Tensor,
    layout: PagedLayout,
    *,
    norms: HeadNorms | None = None,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Return o_BC: `rotate_write`, then attention of the rotated queries; row b is sequence b's last position.

    The output has `dtype`, by default that of `qkv_BN`; with a plan it is only that.
    """
    q_BHD = rotate_write(qkv_BN, places, pool, norms=norms, in_line=True)
    into_BC = None if dtype in (None, qkv_BN.dtype) else torch.empty_like(q_BHD.flatten(1), dtype=dtype)
    return paged_attention(q_BHD, pool, layout, out_TM=into_BC).flatten(1)
