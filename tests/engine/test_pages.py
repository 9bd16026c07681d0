import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoop_worker.engine.pages import PagePool
from tests.engine.audit import audit


def test_pages_are_free_used_or_idle() -> None:
    pool = PagePool(4)
    first, second = pool.allocate(2)
    pool.keep([first])
    pool.release([first, second])
    assert (pool.free, pool.idle, pool.used) == (3, 1, 0)
    pool.retain([first])
    assert (pool.free, pool.idle, pool.used) == (3, 0, 1)
    assert pool.in_use(first) and not pool.in_use(second)
    pool.release([first])
    pool.drop([first])
    assert (pool.free, pool.idle, pool.used) == (4, 0, 0)
    audit(pool)


def test_a_shared_page_stays_until_its_last_user_releases_it() -> None:
    pool = PagePool(1)
    (page,) = pool.allocate(1)
    pool.retain([page])
    pool.release([page])
    assert pool.free == 0
    pool.release([page])
    assert pool.free == 1


@pytest.mark.parametrize("mistake", ["release", "drop", "retain", "keep"])
def test_mistakes_with_a_free_page_are_caught(mistake: str) -> None:
    with pytest.raises(AssertionError):
        getattr(PagePool(2), mistake)([0])


def test_more_than_is_free_cannot_be_had() -> None:
    pool = PagePool(2)
    with pytest.raises(AssertionError):
        pool.allocate(3)


def test_a_lost_page_is_noticed() -> None:
    pool = PagePool(2)
    pool._free.pop()
    with pytest.raises(AssertionError, match="lost"):
        pool.check()


def test_pages_miscounted_so_that_the_sum_is_right_are_noticed_by_the_audit() -> None:
    pool = PagePool(2)
    (page,) = pool.allocate(1)
    pool._uses[page] = 0
    pool.check()
    with pytest.raises(AssertionError, match="lost"):
        audit(pool)


def test_pages_taken_together_are_in_the_order_of_memory() -> None:
    pool = PagePool(4)
    pages = pool.allocate(3)
    pool.release(reversed(pages))
    assert pool.allocate(4) == [0, 1, 2, 3]


@given(st.lists(st.tuples(st.sampled_from(["allocate", "retain", "release", "keep", "drop"]), st.integers(0, 50))))
def test_counts_add_up_after_any_moves(moves: list[tuple[str, int]]) -> None:
    pool = PagePool(5)
    used: list[int] = []
    kept: list[int] = []
    for move, number in moves:
        held = used + kept
        if move == "allocate" and pool.free:
            used += pool.allocate(1)
        elif move == "retain" and held:
            used.append(held[number % len(held)])
            pool.retain(used[-1:])
        elif move == "keep" and held:
            kept.append(held[number % len(held)])
            pool.keep(kept[-1:])
        elif move == "release" and used:
            pool.release([used.pop(number % len(used))])
        elif move == "drop" and kept:
            pool.drop([kept.pop(number % len(kept))])
        audit(pool)
        assert pool.used == len(set(used))
        assert pool.idle == len(set(kept) - set(used))
        assert pool.free == 5 - len(set(used) | set(kept))
