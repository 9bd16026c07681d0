"""The terminal: a console, text made safe for it, and an exit without a traceback if it is closed.

Control characters in text from others appear as visible symbols; they neither move the cursor nor forge a line.
"""

import os
import sys
import unicodedata
from typing import IO, Final

from rich.console import Console

__all__ = ["LEAST_WIDTH", "counted", "flush", "legible", "one_line", "open_console"]

LEAST_WIDTH = 80
"""Columns below which a table has no room for its words."""


def open_console(*, stderr: bool = False) -> Console:
    """Return a console of stdout or stderr; it ignores a COLUMNS that is too small for tables."""
    out = Console(stderr=stderr, highlight=False)
    out.width = max(out.width, LEAST_WIDTH)
    return out


def flush() -> OSError | None:
    """Flush stdout and stderr; return the error if one of them cannot be written."""
    found = None
    # Python has None for a stream that was closed before it started (`>&-`)
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except OSError as error:
            found = error
            _drop(stream)
    return found


def _drop(stream: IO[str]) -> None:
    """Drop the unwritten output, because writing it would fail again when the process exits."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


# maps control characters to their pictures (␛ for ESC), each one column wide
_PICTURES: Final = {**{code: chr(0x2400 + code) for code in range(0x20)}, 0x7F: "␡"}
# control, format (which turns the direction of text), surrogates, separators of lines and paragraphs
_HARMFUL: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
# joiners and direction marks: some languages and many emoji need them, and they are harmless
_NEEDED: Final = frozenset("\u200c\u200d\u200e\u200f")


def counted(count: int, one: str, many: str | None = None) -> str:
    """Return a count with its noun, such as "1 box" or "2 boxes"; the plural adds an s unless `many` is given."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def legible(text: str) -> str:
    """Return the text with a sign in place of each harmful character: ␛ or `\\u202e`; newlines and tabs stay."""
    return _with_signs(text, "\n\t")


def one_line(value: object, width: int | None = None) -> str:
    """Return the text as one line, with newlines and tabs as signs too, cut with … to `width` characters if given."""
    shown = _with_signs(str(value), "")
    return shown if width is None or len(shown) <= width else f"{shown[: width - 1]}…"


def _with_signs(text: str, kept: str) -> str:
    if text.isprintable():
        return text
    return "".join(letter if letter in kept or _is_harmless(letter) else _sign(letter) for letter in text)


def _is_harmless(letter: str) -> bool:
    return letter in _NEEDED or unicodedata.category(letter) not in _HARMFUL


def _sign(letter: str) -> str:
    return _PICTURES.get(ord(letter)) or letter.encode("unicode_escape").decode()
