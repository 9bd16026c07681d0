"""The cache against a model of it: every position of every page is written down, and a match must find it so."""

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from stoop_worker.engine.inputs import Input, MediaInput, TokenInput, ValuesInput, width_of
from stoop_worker.engine.pages import PagePool
from stoop_worker.engine.prefix_cache import Match, PrefixCache
from tests.engine.audit import audit

PREFIX = 6


def tokens(*ids: int) -> list[Input]:
    return [TokenInput(token) for token in ids]


def about(digest: bytes | None, inputs: list[Input]) -> list[Input]:
    """Return inputs behind an image, if there is one."""
    return inputs if digest is None else [MediaInput(digest, PREFIX), *inputs]


@dataclass
class Pages:
    """A pool, a cache, and the contents of each slot of each page."""

    page_size: int = 4
    count: int = 40
    held: dict[tuple[int, int], object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.pool = PagePool(self.count)
        self.cache = PrefixCache(self.pool, self.page_size)

    def run(self, digest: bytes | None, inputs: list[Input]) -> Match:
        """Use the cache as a request about an image, or about text alone, does."""
        return self.take(about(digest, inputs))

    def take(self, inputs: list[Input]) -> Match:
        """Match, share, copy, write the rest, insert, release."""
        history = [(fed, part) for fed in inputs for part in range(width_of([fed]))]
        match = self.cache.match(inputs, len(history) - 1)
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
        self.cache.insert(inputs, pages)
        self.pool.release(pages)
        audit(self.pool)
        return match

    def slot(self, pages: list[int], position: int) -> object:
        return self.held[pages[position // self.page_size], position % self.page_size]


def test_nothing_is_found_in_an_empty_cache() -> None:
    pages = Pages()
    assert pages.run(None, tokens(1, 2, 3)) == Match()
    assert pages.run(b"a", tokens(1, 2, 3)) == Match()


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
    assert pages.cache.match(about(b"a", tokens(1, 2)), PREFIX - 1) == Match()


def test_images_and_text_share_nothing() -> None:
    pages = Pages()
    pages.run(b"a", tokens(1, 2, 3))
    assert pages.run(b"b", tokens(1, 2, 3)) == Match()
    assert pages.run(None, tokens(1, 2, 3)) == Match()


def test_inputs_of_another_kind_are_another_input() -> None:
    pages = Pages()
    pages.run(None, [TokenInput(1), ValuesInput(1, (1.0,)), TokenInput(2)])
    assert pages.run(None, tokens(1, 1, 2)).length == 1


def test_the_least_recently_used_leaf_goes_first_and_an_image_after_its_prompts() -> None:
    pages = Pages()
    pages.run(b"a", tokens(1, 2, 3, 4))
    pages.run(b"b", tokens(1, 2, 3, 4))
    pages.run(b"a", tokens(5, 6, 7, 8))
    pages.cache.make_room(pages.pool.free + 1)
    assert pages.cache.match(about(b"b", tokens(1, 2, 3, 4, 5)), PREFIX + 4).length == PREFIX + 4
    assert pages.cache.match(about(b"a", tokens(5, 6, 7, 8, 9)), PREFIX + 4).length == PREFIX + 4
    assert pages.cache.match(about(b"a", tokens(1, 2, 3, 4, 5)), PREFIX + 4).length == PREFIX
    pages.cache.make_room(pages.count)
    assert pages.pool.free == pages.count
    assert all(pages.cache.match(about(digest, tokens(1)), PREFIX) == Match() for digest in (b"a", b"b"))


def test_pages_in_use_are_evicted_last() -> None:
    pages = Pages()
    pages.run(None, tokens(1, 2, 3, 4))
    match = pages.cache.match(about(None, tokens(1, 2, 3, 4, 5)), 4)
    pages.pool.retain(match.pages)
    pages.run(None, tokens(5, 6, 7, 8))
    pages.cache.make_room(pages.count - 1)
    assert pages.pool.free == pages.count - 1
    assert pages.cache.match(about(None, tokens(1, 2, 3, 4, 5)), 4).length == 4
    pages.cache.make_room(pages.count)
    assert pages.cache.match(about(None, tokens(1, 2, 3, 4, 5)), 4) == Match()
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
def test_a_match_always_holds_the_written_tokens(page_size: int, runs: list[tuple[bytes | None, list[int]]]) -> None:
    pages = Pages(page_size=page_size, count=36 // page_size + 2)
    for digest, ids in runs:
        pages.run(digest, tokens(*ids))
    pages.cache.make_room(pages.count)
    assert pages.pool.free == pages.count


def test_media_at_any_place_are_found_whole() -> None:
    pages = Pages()
    one, two = MediaInput(b"one", 7), MediaInput(b"two", 5)
    pages.take([*tokens(1, 2), one, *tokens(3), two, *tokens(4, 5)])
    assert pages.take([*tokens(1, 2), one, *tokens(3), two, *tokens(4, 6)]).length == 16
    assert pages.take([*tokens(1, 2), one, *tokens(3, 9)]).length == 10
    assert pages.take([*tokens(1, 2), two, *tokens(3)]).length == 2
    assert pages.take([one, *tokens(3)]).length == 0
    # the last index is left to compute, and with it all of the medium that it is in
    assert pages.cache.match([*tokens(1, 2), one], 8).length == 2


def test_a_wider_encoding_of_the_same_image_is_another_medium() -> None:
    pages = Pages()
    pages.take([MediaInput(b"a", 6), *tokens(1, 2)])
    assert pages.take([MediaInput(b"a", 8), *tokens(1, 2)]) == Match()


def test_the_encoding_cost_of_a_medium_is_not_part_of_its_key() -> None:
    pages = Pages()
    pages.take([MediaInput(b"a", 6, cost=9), *tokens(1, 2)])
    assert pages.take([MediaInput(b"a", 6, cost=1), *tokens(1, 3)]).length == 7


elements = st.one_of(
    st.builds(TokenInput, st.integers(0, 2)),
    st.builds(MediaInput, st.sampled_from([b"a", b"b"]), st.sampled_from([2, 5])),
)


@settings(max_examples=150)
@given(
    page_size=st.sampled_from([1, 2, 3, 4, 8]),
    runs=st.lists(st.lists(elements, min_size=1, max_size=8), max_size=20),
)
def test_a_match_holds_the_written_inputs_at_any_place_of_media(page_size: int, runs: list[list[Input]]) -> None:
    pages = Pages(page_size=page_size, count=60 // page_size + 2)
    for inputs in runs:
        match = pages.take([*inputs, TokenInput(9)])
        ends = {width_of(inputs[:count]) for count in range(len(inputs) + 1)}
        assert match.length in ends, "a match ends inside a medium"
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
