"""Names the states of JSON texts, so that texts in the same state can share a mask. llguidance does not name its own.

A state keeps little of what is complete: the keys of each open object, and the number of items of each open array,
because after a value a text goes on as after any other in its place (see `free_strings.py`). A state keeps all bytes of
what is incomplete, except in a free string: there it keeps the number of characters, and what may follow the first
bytes of an incomplete one.
"""

import codecs
import json
import re
from collections.abc import Callable
from typing import Final, NamedTuple

from stoop_worker.engine.grammars.free_strings import FreeStrings

__all__ = ["Place", "State", "States", "Widths"]

_MOST_NODES: Final = 1 << 11
_MOST_EDGES: Final = 1 << 13
_MOST_STATES: Final = 1 << 13
"""The most of one schema. A text that leads to further nodes has no named states from there on."""

_LONGEST: Final = 256  # bytes of a key or a number, because each node in one holds all of it so far
_MOST_PARTS: Final = 256  # open objects and arrays, and keys of open objects, because each node holds all of them
_UNKNOWN: Final = -(1 << 60)  # characters; as many more leave it negative
_LEADS_THREE, _LEADS_FOUR = 0xE0, 0xF0  # the first bytes of characters of three bytes, and of four, begin here
_NARROW: Final = b"\xe0\xed\xf0\xf4"  # only some continuations may follow these
_UTF_8: Final = codecs.getincrementaldecoder("utf-8")
_PLAIN: Final = re.compile(rb'[^"\\\x00-\x1f\x7f]+')

_QUOTE, _ESCAPE, _COMMA, _COLON, _NEWLINE = (ord(each) for each in '"\\,:\n')
_OPENS, _CLOSES, _BLANKS = b"{[", b"}]", b" \t"
_WORD: Final = re.compile(rb"[-+.0-9a-zA-Z]")  # of a number, or of true, false and null


class State:
    """A state of texts: a node, and a mark there. A state equals only itself."""

    __slots__ = ("goes_on", "is_free")

    def __init__(self, *, is_free: bool) -> None:
        self.is_free = is_free  # in a free string
        self.goes_on = False  # True if a text in this state is known not to have ended


class Widths(dict[int, int]):
    """The number of characters of each token, by its id.

    It is 0 if the token has more than characters of strings, such as a quote or an escape, and -1 if it has a part of a
    character.
    """

    def __init__(self, bytes_of: Callable[[int], bytes]) -> None:
        super().__init__()
        self.bytes_of = bytes_of

    def __missing__(self, token: int) -> int:
        spelling = self.bytes_of(token)
        self[token] = width = _width(spelling) if _PLAIN.fullmatch(spelling) else 0
        return width


class _Open(NamedTuple):
    """An open object with its keys, or an array with its `length`, so far; `name` is the property of its parts.

    Keys have their spelling in the text, because llguidance takes an escaped name of a property for another key.
    """

    is_object: bool
    name: str | None
    keys: tuple[bytes, ...] = ()
    length: int = 0


class _Read(NamedTuple):
    """What matters of the JSON up to some byte.

    `last` is the last mark outside of strings, where k stands for a key and v for a value. `part` is the incomplete
    string, number or literal, or the space after `last`.
    """

    opened: tuple[_Open, ...] = ()
    last: str = ""
    part: bytes = b""
    in_string: bool = False
    in_word: bool = False  # a number or a literal
    is_escaped: bool = False  # the next byte belongs to an escape
    has_escapes: bool = False  # this string

    @property
    def name(self) -> str | None:
        """The property to which the next value belongs."""
        return self.opened[-1].name if self.opened else None

    @property
    def at_key(self) -> bool:
        """True if the next string is a key, or this one is."""
        return bool(self.opened) and self.opened[-1].is_object and self.last in ("{", ",")

    def then(self, byte: int) -> "_Read":
        """Read one more byte."""
        if self.in_string:
            return self._in_string(byte)
        spelling = bytes((byte,))
        if _WORD.match(spelling):
            return self._replace(in_word=True, part=self.part + spelling if self.in_word else spelling)
        return (self._complete() if self.in_word else self)._mark(byte)

    def _mark(self, byte: int) -> "_Read":
        if byte == _QUOTE:
            return self._replace(in_string=True, has_escapes=False, part=b"")
        if byte in _OPENS:
            opened = _Open(byte == _OPENS[0], self.name)
            return _Read((*self.opened, opened), chr(byte))
        if byte in _CLOSES:
            return self._replace(opened=self.opened[:-1])._complete()
        if byte in (_COMMA, _COLON):
            return _Read(self.opened, chr(byte))
        # blanks are alike in the space that grammars allow
        return self._replace(part=self.part + (b" " if byte in _BLANKS else bytes((byte,))))

    def _in_string(self, byte: int) -> "_Read":
        if self.is_escaped or byte != _QUOTE:
            begins = byte == _ESCAPE and not self.is_escaped
            part = self.part + bytes((byte,))
            return self._replace(is_escaped=begins, has_escapes=self.has_escapes or begins, part=part)
        if not self.at_key:
            return self._complete()
        name = str(json.loads(b'"%b"' % self.part))
        last = self.opened[-1]
        return _Read((*self.opened[:-1], last._replace(name=name, keys=(*last.keys, self.part))), "k")

    def _complete(self) -> "_Read":
        """End a value."""
        if not self.opened or self.opened[-1].is_object:
            return _Read(self.opened, "v")
        last = self.opened[-1]
        return _Read((*self.opened[:-1], last._replace(length=last.length + 1)), "v")


class _Node:
    """The text read so far, and the node that follows each token; an escape that the token completes may change it."""

    __slots__ = ("edges", "is_free", "read", "states")

    def __init__(self, read: _Read, *, is_free: bool) -> None:
        self.read = read
        self.is_free = is_free
        self.edges: dict[tuple[int, bool], _Edge] = {}
        self.states: dict[_Mark, State] = {}


_Mark = int | tuple[int, int]
"""The last token; or the number of complete characters in a free string, with the kind of an incomplete one's bytes."""

_Edge = tuple[_Node | None, int, bool]
"""The next node, the mark there, and whether an escape is incomplete."""


class States:
    """The states of all texts of one schema, which one thread at a time may follow."""

    def __init__(self, free: FreeStrings, widths: Widths) -> None:
        self.first = _Node(_Read(), is_free=False)
        self.longest = free.longest
        self.widths = widths
        self._free = free
        self._nodes = {self.first.read: self.first}
        self._edges = self._named = 0

    def step(self, node: _Node, token: int, *, is_escaped: bool) -> _Edge:
        """Return where a token leads for the first time, without a node if there are too many.

        There is none either if the token makes a key with a wrong escape, which no schema allows.
        """
        read, left = node.read._replace(is_escaped=is_escaped), not node.is_free
        try:
            for byte in self.widths.bytes_of(token):
                read = read.then(byte)
                left |= not read.in_string
        except ValueError:
            return None, token, False
        if not left:  # an escape in the same free string
            return node, _UNKNOWN, read.is_escaped
        is_free = read.in_string and not read.at_key and read.name not in self._free.others
        edge = self._node(read, is_free=is_free), _characters(read, self.longest) if is_free else token, read.is_escaped
        if edge[0] is not None and self._edges < _MOST_EDGES:
            self._edges += 1
            node.edges[token, is_escaped] = edge
        return edge

    def state(self, node: _Node, mark: _Mark) -> State | None:
        """Return the state with a name; None if there are too many."""
        found = node.states.get(mark)
        if found is None and self._named < _MOST_STATES:
            self._named += 1
            found = node.states[mark] = State(is_free=node.is_free)
        return found

    def _node(self, read: _Read, *, is_free: bool) -> _Node | None:
        most = self._free.longest_array
        opened = tuple(each if each.length <= most else each._replace(length=most) for each in read.opened)
        read = read._replace(opened=opened)
        if is_free:
            read = read._replace(part=b"", is_escaped=False, has_escapes=False)
        found = self._nodes.get(read)
        if found is None and len(self._nodes) < _MOST_NODES and _is_small(read):
            found = self._nodes[read] = _Node(read, is_free=is_free)
        return found


class Place:
    """The state of one text."""

    __slots__ = ("_is_escaped", "_longest", "_mark", "_node", "_part", "_states", "_widths")

    def __init__(self, states: States) -> None:
        self._states = states
        self._widths = states.widths
        self._longest = states.longest
        self._node: _Node | None = states.first
        self._mark = 0  # a token, or complete characters
        self._part = b""  # of a character
        self._is_escaped = False

    @property
    def state(self) -> State | None:
        """The state, which is the same for texts that may go on in the same ways; None if it has no name."""
        if self._node is None or self._mark < 0:
            return None
        return self._states.state(self._node, (self._mark, _kind(self._part)) if self._part else self._mark)

    def take(self, token: int) -> State | None:
        """Follow the next token, which the schema allows; return the state after it."""
        node = self._node
        if node is None:
            return None
        width = self._widths[token] if node.is_free and not self._is_escaped else 0
        if width and (width < 0 or self._part):
            self._mark, self._part = self._joined(self._widths.bytes_of(token))
            return self.state
        if width:
            characters = self._mark + width
            self._mark = characters if characters < self._longest else self._longest
        else:
            edge = node.edges.get((token, self._is_escaped))
            if edge is None:
                edge = self._states.step(node, token, is_escaped=self._is_escaped)
            node, self._mark, self._is_escaped = edge
            self._node, self._part = node, b""
            if node is None:
                return None
        return node.states.get(self._mark) or self.state  # without the call for most tokens

    def _joined(self, spelling: bytes) -> tuple[int, bytes]:
        """Return the complete characters and the part of one after more bytes."""
        decoder = _UTF_8()
        try:
            characters = self._mark + len(decoder.decode(self._part + spelling))
        except UnicodeDecodeError:
            return _UNKNOWN, b""
        return min(characters, self._longest), decoder.getstate()[0]


def _is_small(read: _Read) -> bool:
    parts = len(read.opened) + sum(len(each.keys) for each in read.opened)
    return len(read.part) <= _LONGEST and parts <= _MOST_PARTS


def _width(spelling: bytes) -> int:
    """Return the characters of bytes, or -1 if they are parts of some."""
    try:
        return len(spelling.decode())
    except UnicodeDecodeError:
        return -1


def _kind(part: bytes) -> int:
    """Return a number for the first bytes of a character: the same one if the same bytes may follow them."""
    if len(part) == 1 and part in _NARROW:
        return part[0]
    wanted = 2 + (part[0] >= _LEADS_THREE) + (part[0] >= _LEADS_FOUR)
    return wanted - len(part)


def _characters(read: _Read, longest: int) -> int:
    """Return the characters of the incomplete string; it is not known how a grammar counts escapes."""
    width = _UNKNOWN if read.has_escapes else _width(read.part)
    return _UNKNOWN if width < 0 else min(width, longest)
