"""The kernel that stitches and pools several images against its reference."""

import pytest
import torch

from stoop_worker.kernels.stitch_pool import kernel, reference

GRID, MARGIN = 5, 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("tilings", [[(2, 3)], [(1, 1), (3, 2), (1, 4)]])
def test_images_of_several_tilings(tilings: list[tuple[int, int]], dtype: torch.dtype) -> None:
    rows, crops = [], 0
    for tiling in tilings:
        count = tiling[0] * tiling[1]
        rows.append((crops, crops if count == 1 else crops + 1, *tiling))
        crops += 1 if count == 1 else 1 + count
    features = torch.randn(crops, GRID**2, 6, generator=torch.Generator().manual_seed(0)).to(dtype)
    table = torch.tensor(rows, dtype=torch.int32)
    expected = reference.global_and_local(features, table, margin=MARGIN)
    found = kernel.global_and_local(features, table, margin=MARGIN)
    close = 1e-6 if dtype == torch.float32 else 2e-3
    torch.testing.assert_close(found, expected, rtol=close, atol=close)
    first = rows[0][0]
    assert torch.equal(found[0, :, :6], features[first])
