import mmap
import random

import pytest

from stoop_worker.engine_process.extents import Extent, Extents, whole_pages

PAGE = mmap.PAGESIZE


def test_sizes_are_rounded_up_to_pages() -> None:
    assert [whole_pages(length) for length in (0, 1, PAGE, PAGE + 1)] == [0, PAGE, PAGE, 2 * PAGE]


def test_the_first_free_part_with_enough_room_is_lent() -> None:
    extents = Extents(6 * PAGE)
    assert [extents.borrow(length) for length in (1, PAGE + 1, PAGE)] == [
        (0, PAGE),
        (PAGE, 3 * PAGE),
        (3 * PAGE, 4 * PAGE),
    ]
    extents.give_back((PAGE, 3 * PAGE))
    assert extents.borrow(3 * PAGE) is None
    assert extents.borrow(PAGE) == (PAGE, 2 * PAGE)
    assert extents.borrow(2 * PAGE) == (4 * PAGE, 6 * PAGE)
    assert extents.borrow(1) == (2 * PAGE, 3 * PAGE)
    assert extents.borrow(1) is None


def test_neighbours_join_in_any_order() -> None:
    extents = Extents(3 * PAGE)
    parts = [extents.borrow(PAGE) for _ in range(3)]
    for number in (1, 0, 2):
        part = parts[number]
        assert part is not None
        extents.give_back(part)
    assert extents.borrow(3 * PAGE) == (0, 3 * PAGE)


def test_idle_parts_were_lent_before() -> None:
    extents = Extents(9 * PAGE)
    assert extents.borrow_idle() == []
    for _ in range(6):
        extents.borrow(PAGE)
    extents.give_back((0, 2 * PAGE))
    extents.give_back((3 * PAGE, 4 * PAGE))
    extents.give_back((5 * PAGE, 6 * PAGE))
    idle = extents.borrow_idle()
    assert idle == [(0, 2 * PAGE), (3 * PAGE, 4 * PAGE), (5 * PAGE, 6 * PAGE)]
    assert extents.borrow(2 * PAGE) == (6 * PAGE, 8 * PAGE)  # no other caller gets an idle part meanwhile
    assert extents.borrow_idle() == []
    for extent in idle:
        extents.give_back(extent)
    assert extents.borrow(2 * PAGE) == (0, 2 * PAGE)


def test_stale_parts_exclude_kept_and_recently_lent_memory() -> None:
    extents = Extents(9 * PAGE)
    for _ in range(6):
        extents.borrow(PAGE)
    extents.give_back((0, 2 * PAGE))
    extents.give_back((3 * PAGE, 6 * PAGE))
    assert extents.borrow_stale(PAGE) == []
    assert extents.borrow(2 * PAGE) == (0, 2 * PAGE)
    assert extents.borrow(2 * PAGE) == (3 * PAGE, 5 * PAGE)
    extents.give_back((0, 2 * PAGE))
    assert extents.borrow_stale(PAGE) == [(5 * PAGE, 6 * PAGE)]
    assert extents.borrow_stale(PAGE) == [(PAGE, 2 * PAGE)]


@pytest.mark.parametrize("seed", range(3))
def test_no_byte_is_lent_twice_and_none_is_lost(seed: int) -> None:
    chance, extents, lent = random.Random(seed), Extents(64 * PAGE), list[Extent]()
    for _ in range(500):
        if chance.random() < 0.5 and lent:
            extents.give_back(lent.pop(chance.randrange(len(lent))))
        elif chance.random() < 0.1:
            idle = extents.borrow_idle() if chance.random() < 0.5 else extents.borrow_stale(9 * PAGE)
            for part in idle:
                extents.give_back(part)
        elif found := extents.borrow(chance.randint(1, 9 * PAGE)):
            lent.append(found)
        pages = [page for start, end in lent for page in range(start // PAGE, end // PAGE)]
        assert len(pages) == len(set(pages))
        assert all(page < 64 for page in pages)
    for part in lent:
        extents.give_back(part)
    assert extents.borrow(64 * PAGE) == (0, 64 * PAGE)
