import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stoop_worker.kernels.stitch_pool.reference import pool, stitch, stitch_pool

GRID, MARGIN = 27, 4
STEP = GRID - 2 * MARGIN


@settings(max_examples=25)
@given(st.integers(1, 4), st.integers(1, 4))
def test_crops_cut_from_a_picture_stitch_back_to_it(rows: int, cols: int) -> None:
    picture = torch.arange((STEP * rows + 2 * MARGIN) * (STEP * cols + 2 * MARGIN), dtype=torch.float64)
    picture = picture.view(STEP * rows + 2 * MARGIN, STEP * cols + 2 * MARGIN, 1)
    crops = [
        picture[STEP * row : STEP * row + GRID, STEP * col : STEP * col + GRID].flatten(0, 1)
        for row in range(rows)
        for col in range(cols)
    ]
    assert torch.equal(stitch(torch.stack(crops), rows=rows, cols=cols, margin=MARGIN), picture)


def test_each_crop_gives_its_own_middle() -> None:
    crops = torch.arange(4.0).view(4, 1, 1).expand(4, GRID**2, 1)
    stitched = stitch(crops, rows=2, cols=2, margin=MARGIN)[..., 0]
    edge = GRID - MARGIN
    assert stitched[edge - 1, edge - 1] == 0
    assert stitched[edge - 1, edge] == 1
    assert stitched[edge, edge - 1] == 2
    assert stitched[edge, edge] == 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_pooling_a_grid_to_its_own_size_changes_nothing(dtype: torch.dtype) -> None:
    features = torch.randn(1, GRID**2, 5).to(dtype)
    assert torch.equal(stitch_pool(features, rows=1, cols=1, margin=MARGIN), features[0])


@pytest.mark.parametrize(("height", "width"), [(46, 84), (65, 65), (27, 198)])
def test_pooling_averages_overlapping_windows(height: int, width: int) -> None:
    def windows(count: int) -> torch.Tensor:
        weights = torch.zeros(GRID, count, dtype=torch.float64)
        for cell in range(GRID):
            first, last = cell * count // GRID, -(-(cell + 1) * count // GRID)
            weights[cell, first:last] = 1 / (last - first)
        return weights

    stitched = torch.randn(height, width, 3, dtype=torch.float64)
    expected = torch.einsum("py,yxd,qx->pqd", windows(height), stitched, windows(width)).flatten(0, 1)
    torch.testing.assert_close(pool(stitched, GRID), expected)
