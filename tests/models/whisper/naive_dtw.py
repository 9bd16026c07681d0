"""Dynamic time warping in plain code, place by place."""

from collections.abc import Sequence

__all__ = ["path"]


def path(costs: Sequence[Sequence[float]]) -> list[tuple[int, int]]:
    """Return the places of the cheapest way from the first corner to the last."""
    best: dict[tuple[int, int], tuple[float, tuple[int, int] | None]] = {}
    for row, line in enumerate(costs):
        for column, cost in enumerate(line):
            before = [(row - 1, column - 1), (row - 1, column), (row, column - 1)]
            known = [(best[place][0], place) for place in before if place in best]
            cheapest = min((total for total, _ in known), default=0.0)
            ways = [place for total, place in known if total == cheapest]
            left = (row, column - 1)
            came = None if not ways else ways[0] if len(ways) == 1 or left not in best else left
            best[row, column] = cost + cheapest, came
    found: list[tuple[int, int]] = []
    place: tuple[int, int] | None = (len(costs) - 1, len(costs[0]) - 1)
    while place is not None:
        found.append(place)
        place = best[place][1]
    return found[::-1]
