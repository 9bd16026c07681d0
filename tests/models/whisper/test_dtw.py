import numpy as np
import pytest

from stoop_worker.models.whisper.dtw import shortest_path
from tests.models.whisper import naive_dtw


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (1, 6), (5, 1), (4, 9), (9, 4), (12, 30)])
def test_the_path_is_the_cheapest(rows: int, columns: int) -> None:
    costs = np.random.default_rng(rows * columns).standard_normal((rows, columns))
    found = list(zip(*(each.tolist() for each in shortest_path(costs)), strict=True))
    assert found == naive_dtw.path(costs.tolist())


def test_a_clear_diagonal_is_followed() -> None:
    costs = np.ones((3, 9))
    for row in range(3):
        costs[row, 3 * row : 3 * row + 3] = -1
    rows, columns = shortest_path(costs)
    assert rows.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert columns.tolist() == list(range(9))
