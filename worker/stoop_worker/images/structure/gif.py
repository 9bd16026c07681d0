"""A GIF's blocks up to its first image, without comments and applications' data."""

import re

from stoop_worker.errors import ImageTooLarge

__all__ = ["lean_gif"]

_MOST_BLOCKS = 100_000  # metadata in XMP has one for about 80 bytes of text
_HEAD = 13
_INTRODUCER = re.compile(rb"[!,;]")  # Pillow skips anything else between blocks


def lean_gif(encoded: bytes) -> bytes:
    """Return the file with its first image and only the last graphic control before that; raises `ImageTooLarge`."""
    first = _HEAD + (3 * (2 << (encoded[10] & 7)) if len(encoded) > 10 and encoded[10] & 0x80 else 0)
    control, at, left = b"", first, _MOST_BLOCKS
    while (found := _INTRODUCER.search(encoded, at)) and found.group() == b"!":
        start = found.start()
        at, left = _after_blocks(encoded, start + 2, left)
        if encoded[start + 1 : start + 2] == b"\xf9":
            control = encoded[start:at]
    if found is None:
        return encoded[:first]
    return b"".join((encoded[:first], control, encoded[found.start() :]))


def _after_blocks(encoded: bytes, at: int, left: int) -> tuple[int, int]:
    """Return where the data blocks from `at` on end, and how many more the file may have."""
    while at < len(encoded):
        length = encoded[at]
        at, left = at + 1 + length, left - 1
        if left < 0:
            raise ImageTooLarge(f"the GIF has more than {_MOST_BLOCKS} blocks before its first image")
        if length == 0:
            break
    return at, left
