import torch

from worker.kernels.vision_attention import vision_attention


def test_patches_attend_within_their_crop() -> None:
    q, k, v = torch.randn(3, 2, 5, 3, 8, dtype=torch.float64).unbind(0)
    scores = torch.einsum("nphd,nqhd->nhpq", q, k) / 8**0.5
    expected = torch.einsum("nhpq,nqhd->nphd", scores.softmax(-1), v)
    torch.testing.assert_close(vision_attention(q, k, v), expected)
