"""Ids to text, piece by piece; it never releases a character that a later token could change."""

from collections.abc import Sequence
from typing import Protocol

from stoop_worker.engine.stops import StopStrings

__all__ = ["Detokenizer"]

_CJK = ((0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x2F800, 0x2FA1F))
_FIRST_CJK = chr(min(first for first, _ in _CJK))
_TORN = "�"  # the end of a text whose last character is incomplete


class _Tokenizer(Protocol):
    def detokenize(self, ids: list[int]) -> str: ...

    def piece(self, token: int) -> str | None: ...


class Detokenizer:
    """Releases whole words as they complete; `text` is all text released. The text ends before any of `stops`."""

    def __init__(self, tokenizer: _Tokenizer, stops: Sequence[str] = ()) -> None:
        self._tokenizer = tokenizer
        self._stops = StopStrings(stops) if stops else None
        self._ids: list[int] = []
        self._held = ""  # the text of `_ids`
        self._given = 0  # characters of `_held` already released
        self._pieces: list[str] = []

    @property
    def text(self) -> str:
        """All released pieces, joined."""
        return "".join(self._pieces)

    @property
    def stopped(self) -> bool:
        """True once the text has reached a stop string; do not push after that."""
        return self._stops is not None and self._stops.found

    def push(self, token: int) -> str:
        """Take one more id; return the next piece, often empty."""
        before = self._held
        newest = None if before.endswith(_TORN) else self._tokenizer.piece(token)
        self._ids.append(token)
        self._held = self._tokenizer.detokenize(self._ids) if newest is None else before + newest
        piece = self._give(_complete(self._held, self._given))
        if self._held.endswith("\n"):
            self._forget()
        else:
            self._shorten(before, newest)
        return piece

    def flush(self) -> str:
        """Return the text still held back."""
        if self.stopped:
            return ""
        piece = self._give(len(self._held))
        self._forget()
        if self._stops is None or self.stopped:
            return piece
        rest = self._stops.flush()
        self._pieces.append(rest)
        return piece + rest

    def _give(self, upto: int) -> str:
        piece = self._held[self._given : upto]
        self._given = max(self._given, upto)
        if self._stops is not None:
            piece = self._stops.push(piece, self._held[self._given :])
        if piece:
            self._pieces.append(piece)
        return piece

    def _forget(self) -> None:
        self._ids, self._held, self._given = [], "", 0

    def _shorten(self, before: str, newest: str | None) -> None:
        """Keep only the newest id once all text before it is released, so that a long line costs no more per token."""
        if not len(before) <= self._given or len(self._ids) == 1:
            return
        if newest is None:
            newest = self._tokenizer.detokenize(self._ids[-1:])
        if self._held == before + newest and not newest.startswith(_TORN):
            self._ids, self._held, self._given = self._ids[-1:], newest, self._given - len(before)


def _complete(text: str, given: int) -> int:
    """Return how many characters of the text can be released."""
    if text.endswith("\n"):
        return len(text)
    if text[-1:] >= _FIRST_CJK and any(low <= ord(text[-1]) <= high for low, high in _CJK):
        return len(text)
    return max(given, text.rfind(" ", given) + 1)
