"""Names the states of JSON texts, so that texts in the same state can share a mask. llguidance does not name its own.

The states of one schema are a tree of tokens, with one exception: a free string (see `free_strings.py`) is one node,
whatever its characters are, and the number of characters tells its states apart. The token that ends the string leads
to the same node from all of them.
"""

import json
import re
from collections.abc import Callable
from typing import Final, NamedTuple

from stoop_worker.engine.grammars.free_strings import FreeStrings

__all__ = ["Place", "State", "States", "Widths"]

_MOST: Final = 1 << 11
"""The most nodes of a schema; texts that lead to others have no named states from there on."""

_MOST_GOING: Final = 1 << 13
_LONGEST_KEY: Final = 256  # bytes, because each node in a key holds all of it so far

_UNKNOWN: Final = -(1 << 60)  # characters; as many more leave it negative
_PLAIN: Final = re.compile(rb'[^"\\\x00-\x1f\x7f]+')
_QUOTE, _ESCAPE, _OPENS, _CLOSES, _COMMA = b'"'[0], b"\\"[0], b"{[", b"}]", b","[0]

State = tuple["_Node", int]
"""A node, and the characters in its string."""


class Widths(dict[int, int]):
    """The characters of tokens by their ids: 0 for one that may end a string or escapes, -1 for parts of characters."""

    def __init__(self, bytes_of: Callable[[int], bytes]) -> None:
        super().__init__()
        self.bytes_of = bytes_of

    def __missing__(self, token: int) -> int:
        spelling = self.bytes_of(token)
        width = 0
        if _PLAIN.fullmatch(spelling):
            try:
                width = len(spelling.decode())
            except UnicodeDecodeError:
                width = -1
        self[token] = width
        return width


class _Read(NamedTuple):
    """What is known about JSON up to some byte: the open `values`, and in which string it is, if in any."""

    values: tuple[tuple[bool, str | None], ...] = ()
    """For each open object or array: whether it is an object, and the property that its parts belong to."""

    at_key: bool = False  # the next string is a key, or this one is
    in_string: bool = False
    is_escaped: bool = False  # the next byte belongs to an escape
    has_escapes: bool = False  # this string
    key: bytes = b""  # as spelled so far

    def then(self, byte: int) -> "_Read":
        """Read one more byte."""
        if self.in_string:
            return self._in_string(byte)
        if byte == _QUOTE:
            return self._replace(in_string=True, has_escapes=False, key=b"")
        if byte in _OPENS:
            is_object = byte == _OPENS[0]
            return self._replace(values=(*self.values, (is_object, self.name)), at_key=is_object)
        if byte in _CLOSES:
            return self._replace(values=self.values[:-1], at_key=False)
        if byte == _COMMA:
            return self._replace(at_key=bool(self.values) and self.values[-1][0])
        return self

    @property
    def name(self) -> str | None:
        """The property to which the next value belongs."""
        return self.values[-1][1] if self.values else None

    def _in_string(self, byte: int) -> "_Read":
        if self.is_escaped or byte != _QUOTE:
            begins = byte == _ESCAPE and not self.is_escaped
            key = self.key + bytes((byte,)) if self.at_key else b""
            return self._replace(is_escaped=begins, has_escapes=self.has_escapes or begins, key=key)
        if not self.at_key:
            return self._replace(in_string=False)
        named = (self.values[-1][0], str(json.loads(b'"%b"' % self.key)))
        return self._replace(in_string=False, at_key=False, values=(*self.values[:-1], named))


class _Node:
    """A node, with those that a token leads to; it may also matter whether the token completes an escape."""

    __slots__ = ("edges", "is_free", "read")

    def __init__(self, read: _Read, *, is_free: bool) -> None:
        self.read = read
        self.is_free = is_free
        self.edges: dict[tuple[int, bool], _Node] = {}


class States:
    """The states of all texts of one schema, which one thread at a time may follow."""

    def __init__(self, free: FreeStrings, widths: Widths) -> None:
        self.first = _Node(_Read(), is_free=False)
        self.longest = free.longest
        self.widths = widths
        self.going: set[State] = set()
        """States whose texts are not at their end."""
        self._others = free.others
        self._nodes = 1

    def step(self, node: _Node, token: int, *, is_escaped: bool) -> _Node | bool | None:
        """Return the node that a token leads to for the first time; None if there are too many.

        A bool means that the text stays in the free string, and whether an escape is incomplete then.
        """
        read, left = node.read._replace(is_escaped=is_escaped), not node.is_free
        for byte in self.widths.bytes_of(token):
            read = read.then(byte)
            left |= not read.in_string
        if not left:
            return read.is_escaped
        if self._nodes == _MOST or len(read.key) > _LONGEST_KEY:
            return None
        self._nodes += 1
        is_free = read.in_string and not read.at_key and read.name not in self._others
        found = node.edges[token, is_escaped] = _Node(read, is_free=is_free)
        return found

    def note(self, state: State) -> None:
        """Note that texts in a state go on."""
        if len(self.going) < _MOST_GOING:
            self.going.add(state)


class Place:
    """The state of one text."""

    __slots__ = ("_characters", "_is_escaped", "_longest", "_node", "_states", "_widths")

    def __init__(self, states: States) -> None:
        self._states = states
        self._widths = states.widths
        self._longest = states.longest
        self._node: _Node | None = states.first
        self._characters = 0
        self._is_escaped = False

    @property
    def state(self) -> State | None:
        """The state, which is equal for texts that may go on in the same ways; None if it has no name."""
        node, characters = self._node, self._characters
        return None if node is None or characters < 0 else (node, characters)

    def take(self, token: int) -> State | None:
        """Follow the next token, which the schema allows; return the state after it."""
        node = self._node
        if node is None:
            return None
        width = self._widths[token] if node.is_free and not self._is_escaped else 0
        if width > 0:
            characters = self._characters + width
            self._characters = characters if characters < self._longest else self._longest
        elif width < 0:
            self._characters = _UNKNOWN
        else:
            edge = token, self._is_escaped
            self._move(node.edges.get(edge) or self._states.step(node, token, is_escaped=self._is_escaped))
        return self.state

    def _move(self, found: "_Node | bool | None") -> None:
        if isinstance(found, bool):
            self._characters, self._is_escaped = _UNKNOWN, found
            return
        self._node = found
        if found is not None:
            self._characters = _UNKNOWN if found.is_free and found.read.has_escapes else 0
            self._is_escaped = found.read.is_escaped
