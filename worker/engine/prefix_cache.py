"""Finished prefixes, kept for reuse: one tree for each image and one for text alone.

A root stands for the whole image prefix (or for nothing), whose positions attend to each other and so cannot
be shared in part. Below it is a radix tree over inputs. A node stands for positions [start, end); its pages
cover them, from page start // page_size on. Nodes meet inside a page where an edge is not page-aligned: the
deeper node's page then holds the positions of both, because whoever wrote it had the whole prefix.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count

from worker.engine.inputs import Input
from worker.engine.pages import PagePool

__all__ = ["Match", "PrefixCache"]


@dataclass(frozen=True, slots=True)
class Match:
    """A cached prefix: `pages` are full and can be shared, `partial` must be copied before it is written to."""

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
    digest: bytes | None = None
    children: dict[Input, "_Node"] = field(default_factory=dict)
    used_at: int = 0
    queued: bool = False
    gone: bool = False


class PrefixCache:
    """Matches, inserts and evicts prefixes; holds its pages by `keep` and `drop` on the pool."""

    def __init__(self, pool: PagePool, page_size: int) -> None:
        self._pool = pool
        self._page_size = page_size
        self._text = _Node(start=0, end=0, inputs=(), pages=[])
        self._images: dict[bytes, _Node] = {}
        self._clock = count(1)
        self._leaves: list[tuple[int, int, _Node]] = []  # a heap; entries may be stale

    def knows(self, digest: bytes) -> bool:
        """Say whether the prefix of an image is cached."""
        return digest in self._images

    def match(self, digest: bytes | None, inputs: Sequence[Input], limit: int) -> Match:
        """Find the longest cached prefix of at most `limit` positions, which is never inside an image prefix."""
        root = self._root(digest)
        if root is None or root.end > limit:
            return Match()
        table = list(root.pages)
        node, length = self._touch(root), root.end
        while length < limit and (child := node.children.get(inputs[length - root.end])):
            shared = _shared(child.inputs, inputs, length - root.end)
            self._lay(table, self._touch(child))
            length = min(limit, child.start + shared)
            if length < child.end:
                break
            node = child
        full, rest = divmod(length, self._page_size)
        return Match(length, tuple(table[:full]), table[full] if rest else None)

    def insert(self, digest: bytes | None, prefix_len: int, inputs: Sequence[Input], pages: Sequence[int]) -> None:
        """Keep the positions of an image prefix and the inputs after it, which `pages` hold from position 0 on."""
        root = self._root(digest)
        if root is None:
            root = _Node(start=0, end=prefix_len, inputs=(), pages=self._cover(0, prefix_len, pages), digest=digest)
            assert digest is not None
            self._images[digest] = self._adopt(root)
        node, done = self._touch(root), 0
        while done < len(inputs) and (child := node.children.get(inputs[done])):
            shared = _shared(child.inputs, inputs, done)
            done += shared
            node = self._touch(child if shared == len(child.inputs) else self._split(child, shared))
        if done < len(inputs):
            start, end = root.end + done, root.end + len(inputs)
            leaf = _Node(start, end, tuple(inputs[done:]), self._cover(start, end, pages), parent=node)
            node.children[inputs[done]] = self._adopt(self._touch(leaf))

    def make_room(self, free: int) -> None:
        """Evict least recently used leaves until `free` pages are free, those in use by sequences last."""
        self._evict(free, idle_only=True)
        self._evict(free, idle_only=False)

    def _root(self, digest: bytes | None) -> _Node | None:
        return self._text if digest is None else self._images.get(digest)

    def _touch(self, node: _Node) -> _Node:
        node.used_at = next(self._clock)
        return node

    def _adopt(self, node: _Node) -> _Node:
        self._pool.keep(node.pages)
        self._queue(node)
        return node

    def _cover(self, start: int, end: int, pages: Sequence[int]) -> list[int]:
        return list(pages[start // self._page_size : -(-end // self._page_size)])

    def _lay(self, table: list[int], node: _Node) -> None:
        table[node.start // self._page_size :] = node.pages

    def _split(self, child: _Node, shared: int) -> _Node:
        """Put a node above `child` that takes its first `shared` inputs."""
        at = child.start + shared
        offset = at // self._page_size - child.start // self._page_size
        upto = -(-at // self._page_size) - child.start // self._page_size
        upper = _Node(child.start, at, child.inputs[:shared], child.pages[:upto], parent=child.parent)
        assert child.parent is not None
        child.parent.children[child.inputs[0]] = upper
        upper.children[child.inputs[shared]] = child
        self._pool.keep(child.pages[offset:upto])  # the page that both now keep, if the split is inside one
        child.start, child.inputs, child.pages, child.parent = at, child.inputs[shared:], child.pages[offset:], upper
        return upper

    def _queue(self, node: _Node) -> None:
        if not node.queued:
            node.queued = True
            heappush(self._leaves, (node.used_at, id(node), node))

    def _pop_leaf(self) -> _Node | None:
        """Take the least recently used leaf off the heap; None when there is none."""
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
        node.gone = True
        self._pool.drop(node.pages)
        if node.parent is None:
            assert node.digest is not None
            del self._images[node.digest]
            return
        del node.parent.children[node.inputs[0]]
        if not node.parent.children and node.parent is not self._text:
            self._queue(node.parent)


def _shared(ours: Sequence[Input], theirs: Sequence[Input], offset: int) -> int:
    """Count the leading inputs that `ours` has in common with `theirs` from `offset` on."""
    most = min(len(ours), len(theirs) - offset)
    return next((i for i in range(most) if ours[i] != theirs[offset + i]), most)
