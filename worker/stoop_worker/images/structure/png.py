"""A PNG's chunks: those that make the image's pixels."""

from stoop_worker.errors import ImageTooLarge

__all__ = ["lean_png"]

_MOST_CHUNKS = 65_536  # of the usual 8 KB this is half a gigabyte
_SIGNATURE = 8
_END = b"\0\0\0\0IEND\xaeB`\x82"


def lean_png(encoded: bytes) -> bytes:
    """Return head, palette and image data up to the first other chunk after them; raises `ImageTooLarge`. So texts,
    profiles and an animation's later frames, which Pillow would inflate and check, are not read.
    """
    kept, data, at = [encoded[:_SIGNATURE]], None, _SIGNATURE
    for _ in range(_MOST_CHUNKS):
        kind, end = encoded[at + 4 : at + 8], at + 12 + int.from_bytes(encoded[at : at + 4], "big")
        if kind == b"IDAT":
            data = at if data is None else data
        elif data is not None or len(kind) < 4 or kind == b"IEND":
            break
        elif kind in (b"IHDR", b"PLTE"):
            kept.append(encoded[at:end])
        at = end
    else:
        raise ImageTooLarge(f"the PNG has more than {_MOST_CHUNKS} chunks: save it again in larger ones")
    if data is not None:
        kept.append(encoded[data:at])
    if sum(map(len, kept)) == at and at + len(_END) == len(encoded):
        return encoded  # there is nothing else in it
    # a file truncated within its image data gets no end marker, so it stays damaged
    return b"".join((*kept, _END if at <= len(encoded) else b""))
