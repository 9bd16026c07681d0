"""Finished prefixes, kept for reuse in one radix tree over inputs; a medium is one input, however wide.

A node stands for the indices [start, end); its pages cover them, from page start // page_size on. Nodes meet inside a
page where an edge is not page-aligned: the deeper node's page then holds the indices of both, because the sequence
that wrote it had the whole prefix. An edge ends after a medium, so that the medium outlives the prompts about it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from typing import NamedTuple

from stoop_worker.engine.inputs import Input, MediaInput, width_of
from stoop_worker.engine.pages import PagePool

__all__ = ["Match", "PrefixCache"]


class Match(NamedTuple):
    """A cached prefix: `pages` are full and can be shared; `partial` must be copied before any write."""

    length: int = 0
    pages: tuple[int, ...] = ()
    partial: int | None = None


@dataclass(slots=True, eq=False)
class _Node:
    start: int
    end: int
    inputs: tuple[Input, ...]
    pages: list[int]
    parent: "_Node | None" = None
    children: dict[Input, "_Node"] = field(default_factory=dict)
    used_at: int = 0
    queued: bool = False
    gone: bool = False

    def end_after(self, inputs: int) -> int:
        """Return the index after the node's first `inputs` inputs."""
        # nearly always these are all, or every input is one index wide, and there is nothing to add up
        if inputs == len(self.inputs):
            return self.end
        plain = self.end - self.start == len(self.inputs)
        return self.start + (inputs if plain else width_of(self.inputs[:inputs]))

    def fit(self, inputs: int, limit: int) -> tuple[int, int]:
        """Return how many of the node's first inputs end at or before `limit`, and the index after them."""
        end = self.end_after(inputs)
        while end > limit:
            inputs -= 1
            end = self.end_after(inputs)
        return inputs, end


class PrefixCache:
    """Matches, inserts and evicts prefixes; holds its pages through the pool's `keep` and `drop`."""

    def __init__(self, pool: PagePool, page_size: int) -> None:
        self._pool = pool
        self._page_size = page_size
        self._root = _Node(start=0, end=0, inputs=(), pages=[])
        self._clock = count(1)
        self._leaves: list[tuple[int, int, _Node]] = []  # a heap; entries may be stale

    def match(self, inputs: Sequence[Input], limit: int) -> Match:
        """Find the longest cached prefix of at most `limit` indices; it never ends inside a medium."""
        table: list[int] = []
        node, done, length = self._root, 0, 0
        while length < limit and done < len(inputs) and (child := node.children.get(inputs[done])):
            shared, end = child.fit(_shared(child.inputs, inputs, done), limit)
            if not shared:
                break
            self._write_pages(table, self._touch(child))
            done, length = done + shared, end
            if length < child.end:
                break
            node = child
        full, rest = divmod(length, self._page_size)
        return Match(length, tuple(table[:full]), table[full] if rest else None)

    def insert(self, inputs: Sequence[Input], pages: Sequence[int]) -> None:
        """Keep the keys and values of these inputs, which `pages` hold from index 0 on."""
        node, done = self._root, 0
        while done < len(inputs) and (child := node.children.get(inputs[done])):
            shared = _shared(child.inputs, inputs, done)
            done += shared
            node = self._touch(child if shared == len(child.inputs) else self._split(child, shared))
        for edge in _edges(inputs[done:]):
            end = node.end + width_of(edge)
            leaf = _Node(node.end, end, edge, self._pages_of(node.end, end, pages), parent=node)
            node.children[edge[0]] = self._adopt(self._touch(leaf))
            node = leaf

    def make_room(self, free: int) -> None:
        """Evict least recently used leaves until `free` pages are free; leaves that sequences use go last."""
        self._evict(free, idle_only=True)
        self._evict(free, idle_only=False)

    def _touch(self, node: _Node) -> _Node:
        node.used_at = next(self._clock)
        return node

    def _adopt(self, node: _Node) -> _Node:
        self._pool.keep(node.pages)
        self._queue(node)
        return node

    def _pages_of(self, start: int, end: int, pages: Sequence[int]) -> list[int]:
        return list(pages[start // self._page_size : -(-end // self._page_size)])

    def _write_pages(self, table: list[int], node: _Node) -> None:
        table[node.start // self._page_size :] = node.pages

    def _split(self, child: _Node, shared: int) -> _Node:
        """Put a node above `child` that takes its first `shared` inputs."""
        at = child.end_after(shared)
        offset = at // self._page_size - child.start // self._page_size
        upto = -(-at // self._page_size) - child.start // self._page_size
        upper = _Node(child.start, at, child.inputs[:shared], child.pages[:upto], parent=child.parent)
        assert child.parent is not None
        child.parent.children[child.inputs[0]] = upper
        upper.children[child.inputs[shared]] = child
        self._pool.keep(child.pages[offset:upto])  # if the split is inside a page, both nodes now keep it
        child.start, child.inputs, child.pages, child.parent = at, child.inputs[shared:], child.pages[offset:], upper
        return upper

    def _queue(self, node: _Node) -> None:
        if not node.queued:
            node.queued = True
            heappush(self._leaves, (node.used_at, id(node), node))

    def _pop_leaf(self) -> _Node | None:
        """Take the least recently used leaf off the heap; return None if there is none."""
        while self._leaves:
            used_at, _, node = heappop(self._leaves)
            node.queued = False
            if node.gone or node.children:
                continue
            if node.used_at == used_at:
                return node
            self._queue(node)
        return None

    def _evict(self, free: int, *, idle_only: bool) -> None:
        spared = []
        while self._pool.free < free and (node := self._pop_leaf()):
            if idle_only and all(map(self._pool.in_use, node.pages)):
                spared.append(node)
            else:
                self._remove(node)
        for node in spared:
            self._queue(node)

    def _remove(self, node: _Node) -> None:
        assert node.parent is not None, "the root is not a leaf"
        node.gone = True
        self._pool.drop(node.pages)
        del node.parent.children[node.inputs[0]]
        if not node.parent.children and node.parent is not self._root:
            self._queue(node.parent)


def _shared(ours: tuple[Input, ...], theirs: Sequence[Input], offset: int) -> int:
    """Count the leading inputs that `ours` has in common with `theirs` from `offset` on."""
    rest = tuple(theirs[offset : offset + len(ours)])
    if rest == ours:  # the usual case
        return len(ours)
    return next((i for i, (our, their) in enumerate(zip(ours, rest, strict=False)) if our != their), len(rest))


def _edges(inputs: Sequence[Input]) -> Iterator[tuple[Input, ...]]:
    """Cut inputs after every medium."""
    first = 0
    for after, fed in enumerate(inputs, start=1):
        if isinstance(fed, MediaInput) or after == len(inputs):
            yield tuple(inputs[first:after])
            first = after
