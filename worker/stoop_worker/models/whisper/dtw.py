"""Dynamic time warping: the cheapest way through a matrix of costs. N rows, M columns."""

import numpy as np
import numpy.typing as npt

__all__ = ["shortest_path"]

_Longs = npt.NDArray[np.int64]

_DIAGONAL, _UP, _LEFT = 0, 1, 2


def shortest_path(costs_NM: npt.NDArray[np.float64]) -> tuple[_Longs, _Longs]:
    """Return the rows and the columns of the cheapest path from the first corner to the last.

    A step advances by one row, one column, or both; among equally cheap steps it advances by one column.
    """
    return _walk_back(_moves(costs_NM))


def _moves(costs_NM: npt.NDArray[np.float64]) -> npt.NDArray[np.int8]:
    """Return the last step of the cheapest path to each place, with a border before the first row and column.

    All places of an anti-diagonal are computed together, because each needs only the two before it.
    """
    rows, columns = costs_NM.shape
    total = np.full((rows + 1, columns + 1), np.inf)
    total[0, 0] = 0
    moves = np.zeros((rows + 1, columns + 1), dtype=np.int8)
    moves[0, :], moves[:, 0] = _LEFT, _UP
    for diagonal in range(2, rows + columns + 1):
        row = np.arange(max(1, diagonal - columns), min(rows, diagonal - 1) + 1)
        column = diagonal - row
        came = np.stack((total[row - 1, column - 1], total[row - 1, column], total[row, column - 1]))
        only = (came == came.min(axis=0)).sum(axis=0) == 1
        moves[row, column] = np.where(only, came.argmin(axis=0), _LEFT)
        total[row, column] = costs_NM[row - 1, column - 1] + came.min(axis=0)
    return moves


def _walk_back(moves: npt.NDArray[np.int8]) -> tuple[_Longs, _Longs]:
    row, column = moves.shape[0] - 1, moves.shape[1] - 1
    path = []
    while row > 0 or column > 0:
        path.append((row - 1, column - 1))
        move = moves[row, column]
        row, column = row - (move != _LEFT), column - (move != _UP)
    rows, columns = np.array(path[::-1], dtype=np.int64).T
    return rows, columns
