"""Stages that run pieces ahead: the same pieces, the same end, and nothing left behind."""

import threading
from collections.abc import Callable, Generator

import pytest

from stoop_worker.audio.ahead import ahead, side_by_side

Stage = Callable[[Generator[int, None, None]], Generator[int, None, None]]


def test_a_piece_is_made_while_the_caller_has_the_one_before() -> None:
    making = [threading.Event() for _ in range(4)]

    def pieces() -> Generator[int, None, None]:
        for number, made in enumerate(making):
            made.set()
            yield number

    found = []
    for number in ahead(pieces()):
        if number + 1 < len(making):
            assert making[number + 1].wait(60), "the next piece is being made"
        found.append(number)
    assert found == [0, 1, 2, 3]


def test_pieces_are_worked_on_at_the_same_time_and_come_in_order() -> None:
    begun = [threading.Event() for _ in range(4)]

    def work(number: int) -> str:
        begun[number].set()
        neighbour = number ^ 1  # 0 and 1 wait for each other, and so do 2 and 3
        return f"piece {number}" if begun[neighbour].wait(60) else "alone"

    found = side_by_side(work, (number for number in range(4)), threads=2)
    assert list(found) == ["piece 0", "piece 1", "piece 2", "piece 3"]


@pytest.mark.parametrize("stage", [ahead, lambda pieces: side_by_side(lambda piece: piece, pieces, threads=3)])
def test_an_exception_comes_after_the_pieces_before_it(stage: Stage) -> None:
    def pieces() -> Generator[int, None, None]:
        yield from (1, 2)
        raise ValueError("damaged")

    found = stage(pieces())
    assert [next(found), next(found)] == [1, 2]
    with pytest.raises(ValueError, match="damaged"):
        next(found)


def test_an_exception_of_the_work_comes_in_the_place_of_its_piece() -> None:
    found = side_by_side(lambda number: 1 // number, (number for number in (1, 0, 1)), threads=3)
    assert next(found) == 1
    with pytest.raises(ZeroDivisionError):
        next(found)


@pytest.mark.parametrize("stage", [ahead, lambda pieces: side_by_side(lambda piece: piece, pieces, threads=3)])
def test_a_caller_that_stops_early_leaves_no_thread_and_closes_the_pieces(stage: Stage) -> None:
    closed = threading.Event()

    def pieces() -> Generator[int, None, None]:
        try:
            while True:
                yield 1
        finally:
            closed.set()

    before = threading.active_count()
    found = stage(pieces())
    assert next(found) == 1
    found.close()
    assert closed.is_set()
    assert threading.active_count() == before
