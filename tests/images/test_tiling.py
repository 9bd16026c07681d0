"""The tiling of an image: Moondream's own choices, and the rules for every size."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoop_worker.images import CropGeometry, Tiling, select_tiling

GEOMETRY = CropGeometry()

# (width, height), tiling, (height, width) the image is resized to: as Moondream's reference chooses
CHOICES = [
    ((378, 378), (1, 1), (378, 378)),
    ((200, 300), (1, 1), (378, 378)),
    ((377, 500), (1, 1), (378, 378)),
    ((379, 379), (3, 3), (910, 910)),
    ((490, 490), (3, 3), (910, 910)),
    ((645, 645), (3, 3), (910, 910)),
    ((2000, 2000), (3, 3), (910, 910)),
    ((640, 480), (2, 4), (644, 1176)),
    ((800, 600), (2, 4), (644, 1176)),
    ((850, 600), (2, 4), (644, 1176)),
    ((600, 800), (4, 2), (1176, 644)),
    ((1024, 768), (3, 4), (910, 1176)),
    ((1920, 1080), (2, 4), (644, 1176)),
    ((3840, 2160), (2, 4), (644, 1176)),
    ((1080, 1920), (4, 2), (1176, 644)),
    ((4000, 3000), (2, 4), (644, 1176)),
    ((100, 2000), (1, 1), (378, 378)),
    ((2000, 100), (1, 1), (378, 378)),
    ((378, 2000), (1, 1), (378, 378)),
    ((379, 2000), (6, 1), (1708, 378)),
    ((5000, 500), (1, 10), (378, 2772)),
    ((10000, 400), (1, 15), (378, 4102)),
]


@pytest.mark.parametrize(("size", "tiling", "resized"), CHOICES, ids=lambda value: "x".join(map(str, value)))
def test_moondreams_choices(size: tuple[int, int], tiling: tuple[int, int], resized: tuple[int, int]) -> None:
    width, height = size
    chosen = select_tiling(height, width, GEOMETRY)
    assert (chosen.rows, chosen.cols) == tiling
    assert chosen.size(GEOMETRY) == resized


def test_the_geometry_follows_from_its_three_sizes() -> None:
    assert (GEOMETRY.grid, GEOMETRY.margin, GEOMETRY.window) == (27, 56, 266)


@given(st.integers(1, 6000), st.integers(1, 6000))
def test_sizes_up_to_6000_stay_within_the_known_tilings(height: int, width: int) -> None:
    known = {(1, 1), (2, 4), (2, 5), (2, 6), (3, 3), (3, 4), (4, 2), (4, 3), (5, 2), (6, 1), (6, 2)}
    known |= {(1, cols) for cols in range(6, 12)} | {(rows, 1) for rows in range(6, 12)}
    tiling = select_tiling(height, width, GEOMETRY)
    assert (tiling.rows, tiling.cols) in known


@given(st.integers(1, 60_000), st.integers(1, 60_000))
def test_a_side_within_one_crop_gives_one_crop(height: int, width: int) -> None:
    one = min(height, width) <= GEOMETRY.crop_size
    assert (select_tiling(height, width, GEOMETRY) == Tiling(1, 1)) is one
