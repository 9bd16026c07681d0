"""The kernel that copies pages against its reference."""

import pytest
import torch

from stoop_worker.kernels.copy_pages import kernel, reference


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.uint8])
@pytest.mark.parametrize(("page", "heads", "head_dim"), [(16, 2, 8), (4, 1, 3), (1, 1, 1), (16, 9, 64)])
def test_it_copies_the_same_bytes(page: int, heads: int, head_dim: int, dtype: torch.dtype) -> None:
    random = torch.Generator().manual_seed(0)
    pages = torch.randint(0, 256, (2, 2, 7, page, heads, head_dim), generator=random).to(dtype)
    expected = pages.clone()
    for sources, targets in (([3, -1, 0], [6, 2, 1]), ([-1], [4]), ([5], [3])):
        sent = torch.tensor(sources), torch.tensor(targets)
        kernel.copy_pages(pages, *sent)
        reference.copy_pages(expected, *sent)
        assert torch.equal(pages, expected)
