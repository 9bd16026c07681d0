"""The kernel of embeddings against its reference."""

import pytest
import torch

from stoop_worker.kernels.embedding import kernel, reference


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("width", [40, 2048, 2560])
def test_a_negative_id_stands_for_the_one_at_its_index(width: int, dtype: torch.dtype) -> None:
    table = torch.full((9, width + 8), torch.nan, dtype=dtype)
    table[:, :width] = torch.randn(9, width)
    last = torch.tensor([3, 8, 0])
    ids, index = torch.tensor([5, -1, 0, -1, 8]), torch.tensor([0, 1, 2, 0, 1])
    found = kernel.embed(ids, index, last, table[:, :width])
    assert torch.equal(found, table[[5, 8, 0, 3, 8], :width])
    assert torch.equal(found, reference.embed(ids, index, last, table[:, :width]))
