"""Attention within packed texts on the device, against its reference."""

import pytest
import torch

from stoop_worker.kernels.packed_attention import Texts, packed_attention, reference


@pytest.mark.parametrize("window", [None, 100])
@pytest.mark.parametrize(("heads", "key_heads", "dim"), [(16, 16, 64), (12, 12, 32), (6, 2, 48)])
def test_texts_of_all_lengths_in_one_launch(heads: int, key_heads: int, dim: int, window: int | None) -> None:
    torch.manual_seed(0)
    lengths = [1, 64, 200, 512, 0, 33, 90]
    made = torch.randn(sum(lengths), heads + 2 * key_heads, dim, device="cuda").bfloat16()
    q, k, v = made.split((heads, key_heads, key_heads), dim=1)
    texts = Texts(torch.tensor([0, *lengths]).cumsum(0).int().cuda(), 512)
    found = packed_attention(q, k, v, texts, scale=dim**-0.5, window=window).float()
    expected = reference.packed_attention(q, k, v, texts, scale=dim**-0.5, window=window).float()
    assert ((found - expected).norm() / expected.norm()).item() < 0.01
