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
    """Releases whole words as they complete; `text` is all text released. The text ends before any of `stops`.

    Without `whole_words` it releases every character as soon as all of its bytes are there.
    """

    def __init__(self, tokenizer: _Tokenizer, stops: Sequence[str] = (), *, whole_words: bool = True) -> None:
        self._tokenizer = tokenizer
        self._piece = tokenizer.piece
        self._stops = StopStrings(stops) if stops else None
        self._whole_words = whole_words
        self._open = ""  # the text that is not released yet
        self._pieces: list[str] = []
        # while only the text of all ids together is known:
        self._before = ""  # text of whole characters before that of `_ids`
        self._ids: list[int] = []
        self._held = ""  # `_before` and the text of `_ids`, which ends in `_open`

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
        newest = None if self._open.endswith(_TORN) else self._piece(token)
        if newest is None:
            return self._decode(token)
        if self._ids:
            self._forget()
        return self._release(self._open + newest)

    def flush(self) -> str:
        """Return the text still held back."""
        if self.stopped:
            return ""
        self._forget()
        piece = self._give(self._open, "")
        self._open = ""
        if self._stops is None or self.stopped:
            return piece
        rest = self._stops.flush()
        self._pieces.append(rest)
        return piece + rest

    def _decode(self, token: int) -> str:
        """Take an id whose text depends on its neighbours, so that those before it must be decoded with it."""
        if not self._ids:
            self._before = self._held = self._open
        before, given = self._held, len(self._held) - len(self._open)
        self._ids.append(token)
        self._held = self._before + self._tokenizer.detokenize(self._ids)
        piece = self._release(self._held[given:])
        if self._held.endswith("\n"):
            self._forget()
        elif len(before) <= len(self._held) - len(self._open):
            self._shorten(before)
        return piece

    def _shorten(self, before: str) -> None:
        """Keep only the newest id if all text before it is released, so that a long line costs no more per token."""
        newest = self._tokenizer.detokenize(self._ids[-1:])
        if self._held == before + newest and not newest.startswith(_TORN):
            self._before, self._ids, self._held = "", self._ids[-1:], newest

    def _release(self, text: str) -> str:
        """Return the words or characters of a text that are complete, and keep the rest."""
        end = _end_of_words(text) if self._whole_words else len(text.rstrip(_TORN))
        piece, self._open = text[:end], text[end:]
        return self._give(piece, self._open) if piece or self._stops is not None else ""

    def _give(self, piece: str, following: str) -> str:
        if self._stops is not None:
            piece = self._stops.push(piece, following.rstrip(_TORN))
        if piece:
            self._pieces.append(piece)
        return piece

    def _forget(self) -> None:
        self._before, self._ids, self._held = "", [], ""


def _end_of_words(text: str) -> int:
    last = text[-1:]
    is_whole = last == "\n" or (last >= _FIRST_CJK and _is_cjk(last))
    return len(text) if is_whole else text.rfind(" ") + 1


def _is_cjk(character: str) -> bool:
    return any(low <= ord(character) <= high for low, high in _CJK)
