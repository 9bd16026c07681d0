"""Copies of pages, compiled and at full size."""

import pytest
import torch

from stoop_worker.kernels.copy_pages import copy_pages


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn, torch.float32])
def test_pages_are_copied_in_all_layers_and_no_other_page_changes(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    pages = torch.randn(24, 2, 100, 16, 32, 64, device="cuda").to(dtype)
    before = pages.clone().view(torch.uint8)
    sources, targets = torch.tensor([[3, -1, 99, -1, 0], [50, 0, 98, 7, 1]], dtype=torch.int32, device="cuda")
    copy_pages(pages, sources, targets)
    expected = before.clone()
    expected[:, :, [50, 98, 1]] = before[:, :, [3, 99, 0]]
    assert torch.equal(pages.view(torch.uint8), expected)
