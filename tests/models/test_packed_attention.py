from itertools import accumulate

import pytest
import torch

from stoop_worker.engine.tensors import PackedTexts
from stoop_worker.models.blocks.packed_attention import packed_attention

LENGTHS = (1, 5, 5, 9, 5, 12)


def packed_of(starts: tuple[int, ...], *, captured: bool) -> PackedTexts:
    ids_T = torch.zeros(starts[-1], dtype=torch.int64)
    starts_N1 = torch.tensor(starts, dtype=torch.int32)
    return PackedTexts(ids_T, ids_T, starts_N1, None if captured else starts, max(LENGTHS), (), lambda: None)


@pytest.mark.parametrize("captured", [False, True])
@pytest.mark.parametrize("window", [None, 0, 3, 20])
def test_each_token_attends_to_its_own_text_within_the_window(window: int | None, captured: bool) -> None:
    random = torch.Generator().manual_seed(3)
    count = sum(LENGTHS)
    q, k, v = (torch.randn(count, heads, 8, generator=random, dtype=torch.float64) for heads in (6, 2, 2))
    packed = packed_of((0, *accumulate(LENGTHS)), captured=captured)
    text = torch.repeat_interleave(torch.arange(len(LENGTHS)), torch.tensor(LENGTHS))
    place = torch.arange(count)
    allowed = text[:, None] == text
    if window is not None:
        allowed &= (place[:, None] - place).abs() <= window
    weights = torch.einsum("ihd,jhd->hij", q, k.repeat_interleave(3, 1)) * 0.3
    weights = weights.masked_fill(~allowed, float("-inf")).softmax(-1)
    expected = torch.einsum("hij,jhd->ihd", weights, v.repeat_interleave(3, 1))
    torch.testing.assert_close(packed_attention(q, k, v, packed, scale=0.3, window=window), expected)
