"""Chooses the walk by the file's first bytes."""

from stoop_worker.images.structure.bmp import check_bmp
from stoop_worker.images.structure.gif import lean_gif
from stoop_worker.images.structure.jpeg import lean_jpeg
from stoop_worker.images.structure.png import lean_png
from stoop_worker.images.structure.tiff import lean_tiff

__all__ = ["lean"]

_TIFF = (b"II*\0", b"MM\0*", b"II\0*", b"MM*\0", b"II+\0", b"MM\0+")


def lean(encoded: bytes, most_pixels: int) -> bytes:
    """Return the file with only the parts that its first image's pixels need; other kinds of files return unchanged.

    WebP has no walk: libwebp reads it in C in one pass, and its canvas has at most 16,383 pixels a side. Raises
    `ImageTooLarge` if the file asks for more work than an image of `most_pixels` may take.
    """
    if encoded.startswith(b"\xff\xd8\xff"):
        return lean_jpeg(encoded, most_pixels)
    if encoded.startswith(b"\x89PNG\r\n\x1a\n"):
        return lean_png(encoded)
    if encoded.startswith((b"GIF87a", b"GIF89a")):
        return lean_gif(encoded)
    if encoded.startswith(b"BM"):
        check_bmp(encoded)
    if encoded.startswith(_TIFF):
        return lean_tiff(encoded, most_pixels)
    return encoded
