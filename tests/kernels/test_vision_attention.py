import torch

from stoop_worker.kernels.vision_attention import vision_attention


def test_patches_attend_within_their_crop() -> None:
    qkv = torch.randn(2, 5, 3, 3, 8, dtype=torch.float64)
    q, k, v = qkv.unbind(2)
    scores = torch.einsum("nphd,nqhd->nhpq", q, k) / 8**0.5
    expected = torch.einsum("nhpq,nqhd->nphd", scores.softmax(-1), v)
    torch.testing.assert_close(vision_attention(qkv), expected)
