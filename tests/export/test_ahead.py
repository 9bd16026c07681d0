import threading
from collections.abc import Iterator

from stoop.errors import ImageUnreadable, StoopError
from stoop.export.ahead import ahead


def test_answers_keep_their_order() -> None:
    first_may_end = threading.Event()

    def call(number: int) -> int:
        if number == 0:
            assert first_may_end.wait(10), "a later call runs while the first one waits"
        else:
            first_may_end.set()
        return number * number

    assert list(ahead(call, range(100))) == [(number, number * number) for number in range(100)]


def test_an_error_is_an_answer() -> None:
    def call(number: int) -> int:
        if number == 1:
            raise ImageUnreadable("gone")
        return number

    answers = dict(ahead(call, range(3)))
    assert isinstance(answers[1], StoopError)
    assert (answers[0], answers[2]) == (0, 2)


def test_it_runs_ahead_by_a_bounded_number() -> None:
    taken = 0

    def count() -> Iterator[int]:
        nonlocal taken
        for number in range(10_000):
            taken += 1
            yield number

    answers = ahead(lambda number: number, count())
    next(answers)
    assert taken <= 32
