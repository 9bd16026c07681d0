"""The definition of attention within packed texts, against torch's attention of each text alone."""

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from stoop_worker.kernels.packed_attention import Texts, packed_attention


@pytest.mark.parametrize("window", [None, 2])
def test_each_text_is_attended_to_as_if_it_were_alone(window: int | None) -> None:
    lengths, heads, key_heads, dim = (3, 1, 7), 4, 2, 6
    q, k, v = (torch.randn(sum(lengths), count, dim, dtype=torch.float64) for count in (heads, key_heads, key_heads))
    starts = torch.tensor([0, *lengths]).cumsum(0).int()
    found = packed_attention(q, k, v, Texts(starts, max(lengths)), scale=0.4, window=window)
    texts = zip(*(rows.split(lengths) for rows in (q, k, v, found)), strict=True)
    for q_LHD, k_LKD, v_LKD, o_LHD in texts:
        places = torch.arange(len(q_LHD))
        near = None if window is None else (places[:, None] - places).abs() <= window
        q_HLD, k_KLD, v_KLD = (rows.transpose(0, 1) for rows in (q_LHD, k_LKD, v_LKD))
        expected = scaled_dot_product_attention(q_HLD, k_KLD, v_KLD, attn_mask=near, scale=0.4, enable_gqa=True)
        torch.testing.assert_close(o_LHD, expected.transpose(0, 1))


def test_rows_of_no_text_are_zero() -> None:
    q, k, v = (torch.randn(4, 1, 8) for _ in range(3))
    found = packed_attention(q, k, v, Texts(torch.tensor([0, 3]).int(), 3), scale=1.0)
    assert (found[3] == 0).all() and (found[:3] != 0).any()
