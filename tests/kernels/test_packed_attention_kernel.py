"""The kernel of attention within packed texts against its reference."""

import pytest
import torch
from torch import Tensor

from stoop_worker.kernels.packed_attention import Texts, kernel, reference
from stoop_worker.kernels.packed_attention.kernel import Tiles

SMALL = Tiles(16, 16, 4, 1)


def rows_of(tokens: int, heads: int, key_heads: int, dim: int) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values that lie side by side, as one product makes them."""
    random = torch.Generator().manual_seed(tokens)
    made = torch.randn(tokens, heads + 2 * key_heads, dim, generator=random)
    return made[:, :heads], made[:, heads : heads + key_heads], made[:, heads + key_heads :]


@pytest.mark.parametrize("window", [None, 0, 5, 20])
@pytest.mark.parametrize(("heads", "key_heads", "dim"), [(2, 2, 16), (3, 1, 24)])
def test_every_token_attends_to_its_own_text(heads: int, key_heads: int, dim: int, window: int | None) -> None:
    lengths = [1, 16, 0, 37, 5]
    starts = torch.tensor([0, *lengths]).cumsum(0).int()
    q, k, v = rows_of(sum(lengths), heads, key_heads, dim)
    expected = reference.packed_attention(q, k, v, Texts(starts, 37), scale=0.3, window=window)
    found = kernel.attend((q, k, v), Texts(starts, 37), SMALL, scale=0.3, window=window)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_rows_after_the_last_text_do_no_harm() -> None:
    q, k, v = rows_of(24, 2, 2, 16)
    starts = torch.tensor([0, 10, 20, 20]).int()
    for rows in (q, k, v):
        rows[20:] = torch.nan
    expected = reference.packed_attention(q, k, v, Texts(starts, 37), scale=0.25)
    found = kernel.attend((q, k, v), Texts(starts, 24), SMALL, scale=0.25, window=None)
    torch.testing.assert_close(found[:20], expected[:20], rtol=1e-4, atol=1e-5)


def test_large_scores_do_not_overflow() -> None:
    q, k, v = rows_of(20, 1, 1, 16)
    starts = torch.tensor([0, 20]).int()
    found = kernel.attend((100 * q, 100 * k, v), Texts(starts, 20), SMALL, scale=1.0, window=None)
    expected = reference.packed_attention(100 * q, 100 * k, v, Texts(starts, 37), scale=1.0)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)
