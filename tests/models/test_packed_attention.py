import pytest
import torch

from stoop_worker.models.blocks.packed_attention import packed_attention

LENGTHS = (1, 5, 5, 9, 5, 12)


@pytest.mark.parametrize("window", [None, 0, 3, 20])
def test_each_token_attends_to_its_own_text_within_the_window(window: int | None) -> None:
    random = torch.Generator().manual_seed(3)
    count = sum(LENGTHS)
    q, k, v = (torch.randn(count, heads, 8, generator=random, dtype=torch.float64) for heads in (6, 2, 2))
    starts = [0, *torch.tensor(LENGTHS).cumsum(0).tolist()]
    text = torch.repeat_interleave(torch.arange(len(LENGTHS)), torch.tensor(LENGTHS))
    place = torch.arange(count)
    allowed = text[:, None] == text
    if window is not None:
        allowed &= (place[:, None] - place).abs() <= window
    weights = torch.einsum("ihd,jhd->hij", q, k.repeat_interleave(3, 1)) * 0.3
    weights = weights.masked_fill(~allowed, float("-inf")).softmax(-1)
    expected = torch.einsum("hij,jhd->ihd", weights, v.repeat_interleave(3, 1))
    torch.testing.assert_close(packed_attention(q, k, v, starts, scale=0.3, window=window), expected)
