"""The kernel that rotates an encoder's queries and keys, against its reference."""

import pytest
import torch

from stoop_worker.kernels.rotate_heads import kernel, reference

TOLERANCE = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("rows", "heads", "channels"), [(1, 1, 8), (5, 3, 24), (37, 16, 64)])
def test_it_agrees_with_the_reference(rows: int, heads: int, channels: int, dtype: torch.dtype) -> None:
    found = torch.randn(rows, 3, heads, channels).to(dtype)
    expected, values = found.clone(), found[:, 2].clone()
    angles = 9 * torch.randn(rows, channels // 2)
    rotations = torch.stack((angles.cos(), angles.sin()), dim=-1)
    kernel.rotate_heads(found, rotations)
    reference.rotate_heads(expected, rotations)
    torch.testing.assert_close(found, expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])
    assert torch.equal(found[:, 2], values)


def test_no_rows_launch_no_kernel() -> None:
    kernel.rotate_heads(torch.zeros(0, 3, 2, 8), torch.zeros(0, 4, 2))
