"""The cache against a model of it: every position of every page is written down, and a match must find it so."""

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.audit import audit
from worker.engine.inputs import CoordinateInput, Input, TokenInput
from worker.engine.pages import PagePool
from worker.engine.prefix_cache import Match, PrefixCache

PREFIX = 6


def tokens(*ids: int) -> list[Input]:
    return [TokenInput(token) for token in ids]


@dataclass
class Pages:
    """A pool, a cache, and what each slot of each page holds."""

    page_size: int = 4
    count: int = 40
    held: dict[tuple[int, int], object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.pool = PagePool(self.count)
        self.cache = PrefixCache(self.pool, self.page_size)

    def run(self, digest: bytes | None, inputs: list[Input]) -> Match:
        """Do what a request does: match, share, copy, write the rest, insert, let go."""
        prefix = PREFIX if digest else 0
        history = [(digest, i) for i in range(prefix)] + list(inputs)
        match = self.cache.match(digest, inputs, len(history) - 1)
        shared = [*match.pages] + ([] if match.partial is None else [match.partial])
        self.pool.retain(shared)
        need = -(-len(history) // self.page_size) - len(match.pages)
        if self.pool.free < need:
            self.cache.make_room(need)
        pages = [*match.pages, *self.pool.allocate(need)]
        if match.partial is not None:
            for offset in range(self.page_size):
                self.held[pages[len(match.pages)], offset] = self.held.get((match.partial, offset))
            self.pool.release([match.partial])
        for position in range(match.length):
            assert self.slot(pages, position) == (history[position], position), "a match holds something else"
        for position in range(match.length, len(history)):
            self.held[pages[position // self.page_size], position % self.page_size] = (history[position], position)
        self.cache.insert(digest, prefix, inputs, pages)
        self.pool.release(pages)
        audit(self.pool)
        return match

    def slot(self, pages: list[int], position: int) -> object:
        return self.held[pages[position // self.page_size], position % self.page_size]


def test_nothing_is_found_in_an_empty_cache() -> None:
    pages = Pages()
    assert pages.run(None, tokens(1, 2, 3)) == Match()
    assert pages.run(b"a", tokens(1, 2, 3)) == Match()
    assert pages.cache.knows(b"a") and not pages.cache.knows(b"b")


def test_full_pages_are_shared_and_the_last_is_copied() -> None:
    pages = Pages()
    pages.run(None, tokens(*range(10)))
    match = pages.run(None, tokens(*range(10)))
    # the last position is left to compute: 9 are found, 8 of them in full pages
    assert (match.length, len(match.pages), match.partial is None) == (9, 2, False)


def test_a_match_may_end_inside_a_node_and_split_it() -> None:
    pages = Pages()
    pages.run(None, tokens(1, 2, 3, 4, 5, 6, 7))
    assert pages.run(None, tokens(1, 2, 3, 4, 5, 9, 9)).length == 5
    assert pages.run(None, tokens(1, 2, 3, 4, 5, 6, 8)).length == 6
    assert pages.run(None, tokens(1, 2, 3, 4, 5, 9, 8)).length == 6
    assert pages.run(None, tokens(1, 2, 8)).length == 2


def test_an_image_prefix_is_found_whole_or_not_at_all() -> None:
    pages = Pages()
    pages.run(b"a", tokens(1, 2))
    assert pages.run(b"a", tokens(7, 8)).length == PREFIX
    assert pages.cache.match(b"a", tokens(1, 2), PREFIX - 1) == Match()


def test_images_and_text_share_nothing() -> None:
    pages = Pages()
    pages.run(b"a", tokens(1, 2, 3))
    assert pages.run(b"b", tokens(1, 2, 3)) == Match()
    assert pages.run(None, tokens(1, 2, 3)) == Match()


def test_inputs_of_another_kind_are_another_input() -> None:
    pages = Pages()
    pages.run(None, [TokenInput(1), CoordinateInput(1.0), TokenInput(2)])
    assert pages.run(None, tokens(1, 1, 2)).length == 1


def test_the_least_recently_used_leaf_goes_first_and_an_image_after_its_prompts() -> None:
    pages = Pages()
    pages.run(b"a", tokens(1, 2, 3, 4))
    pages.run(b"b", tokens(1, 2, 3, 4))
    pages.run(b"a", tokens(5, 6, 7, 8))
    pages.cache.make_room(pages.pool.free + 1)
    assert pages.cache.match(b"b", tokens(1, 2, 3, 4, 5), PREFIX + 4).length == PREFIX + 4
    assert pages.cache.match(b"a", tokens(5, 6, 7, 8, 9), PREFIX + 4).length == PREFIX + 4
    assert pages.cache.match(b"a", tokens(1, 2, 3, 4, 5), PREFIX + 4).length == PREFIX
    pages.cache.make_room(pages.count)
    assert pages.pool.free == pages.count
    assert not pages.cache.knows(b"a") and not pages.cache.knows(b"b")


def test_what_is_in_use_is_evicted_only_when_nothing_else_helps() -> None:
    pages = Pages()
    pages.run(None, tokens(1, 2, 3, 4))
    match = pages.cache.match(None, tokens(1, 2, 3, 4, 5), 4)
    pages.pool.retain(match.pages)
    pages.run(None, tokens(5, 6, 7, 8))
    pages.cache.make_room(pages.count - 1)
    assert pages.pool.free == pages.count - 1
    assert pages.cache.match(None, tokens(1, 2, 3, 4, 5), 4).length == 4
    pages.cache.make_room(pages.count)
    assert pages.cache.match(None, tokens(1, 2, 3, 4, 5), 4) == Match()
    pages.pool.release(match.pages)
    assert pages.pool.free == pages.count


@settings(max_examples=150)
@given(
    page_size=st.sampled_from([1, 2, 3, 4, 8]),
    runs=st.lists(
        st.tuples(st.sampled_from([None, b"a", b"b", b"c"]), st.lists(st.integers(0, 2), min_size=1, max_size=9)),
        max_size=25,
    ),
)
def test_a_match_always_holds_what_was_written(page_size: int, runs: list[tuple[bytes | None, list[int]]]) -> None:
    pages = Pages(page_size=page_size, count=36 // page_size + 2)
    for digest, ids in runs:
        pages.run(digest, tokens(*ids))
    pages.cache.make_room(pages.count)
    assert pages.pool.free == pages.count


def test_the_longest_known_prefix_is_found() -> None:
    pages = Pages(count=400)
    seen: list[list[int]] = []
    for number in range(60):
        ids = [(number * 7 + i * i) % 3 for i in range(5 + number % 7)]
        known = max((_common(ids, other) for other in seen), default=0)
        assert pages.run(None, tokens(*ids)).length == min(known, len(ids) - 1)
        seen.append(ids)


def _common(ours: list[int], theirs: list[int]) -> int:
    return next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), min(len(ours), len(theirs)))
