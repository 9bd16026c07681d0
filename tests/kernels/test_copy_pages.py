import pytest
import torch

from stoop_worker.kernels.copy_pages import copy_pages


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float8_e4m3fn])
def test_pages_are_copied_in_all_layers_and_no_other_page_changes(dtype: torch.dtype) -> None:
    pages = torch.randn(3, 2, 6, 4, 2, 8).to(dtype)
    before = pages.double()
    copy_pages(pages, torch.tensor([4, -1, 2]), torch.tensor([1, 0, 5]))
    expected = before.clone()
    expected[:, :, [1, 5]] = before[:, :, [4, 2]]
    assert torch.equal(pages.double(), expected)
