"""A stage that runs a piece ahead: the same pieces, the same end, and nothing left behind."""

import threading
from collections.abc import Generator

import pytest

from stoop_worker.audio.ahead import ahead


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


def test_an_exception_comes_after_the_pieces_before_it() -> None:
    def pieces() -> Generator[int, None, None]:
        yield 1
        raise ValueError("damaged")

    stage = ahead(pieces())
    assert next(stage) == 1
    with pytest.raises(ValueError, match="damaged"):
        next(stage)


def test_a_caller_that_stops_early_leaves_no_thread_and_closes_the_pieces() -> None:
    closed = threading.Event()

    def pieces() -> Generator[int, None, None]:
        try:
            while True:
                yield 1
        finally:
            closed.set()

    before = threading.active_count()
    stage = ahead(pieces())
    assert next(stage) == 1
    stage.close()
    assert closed.is_set()
    assert threading.active_count() == before
