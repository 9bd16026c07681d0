"""Encoded bytes to RGB pixels, with every limit checked before a pixel is decoded."""

import hashlib
import io
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import simplejpeg
from PIL import Image as Pillow
from PIL import UnidentifiedImageError

from worker.errors import ImageTooLarge, ImageUndecodable

__all__ = ["Allocate", "Image", "ImageLimits", "load"]

Allocate = Callable[[tuple[int, ...]], npt.NDArray[np.uint8]]
"""Returns an array of this shape that is the caller's to fill."""

# the second byte of the markers that begin a JPEG's frame: C4, C8 and CC begin something else
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_COMMON_FRAMES = frozenset({0xC0, 0xC1, 0xC2})


@dataclass(frozen=True, slots=True)
class ImageLimits:
    """What the worker accepts: most bytes, most pixels, and Pillow's names of formats."""

    max_bytes: int = 32 << 20
    max_pixels: int = 64_000_000
    formats: tuple[str, ...] = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")


@dataclass(frozen=True, slots=True)
class Image:
    """RGB pixels (height, width, 3) uint8, and a digest that no other pixels have."""

    pixels: npt.NDArray[np.uint8]
    digest: bytes

    @classmethod
    def of(cls, pixels: npt.NDArray[np.uint8]) -> "Image":
        """Wrap RGB pixels (height, width, 3) uint8; the digest is that of their values and shape."""
        pixels = np.ascontiguousarray(pixels)
        digest = hashlib.blake2b(repr(pixels.shape).encode(), digest_size=16)
        digest.update(pixels.data)
        return cls(pixels=pixels, digest=digest.digest())


def load(encoded: bytes, limits: ImageLimits, allocate: Allocate | None = None) -> Image:
    """Decode an image's first frame to RGB: alpha dropped, palettes expanded, EXIF rotation ignored.

    This is what Pillow's conversion gives, and so the reference; but 16-bit greyscale keeps its upper 8 bits, as
    16-bit colour does there, where Pillow would turn nearly all of it white. A JPEG without a fault is decoded
    straight to RGB by simplejpeg's libjpeg-turbo: the same pixels as by Pillow's, in half the time.
    The digest is that of the encoded bytes: hashing the pixels takes half as long as decoding them. With `allocate`
    the pixels are in an array that it made.
    Raises `ImageTooLarge` (bytes or pixels, known before decoding) or `ImageUndecodable`.
    """
    if len(encoded) > limits.max_bytes:
        raise ImageTooLarge(f"the image has {len(encoded)} bytes: at most {limits.max_bytes}")
    try:
        return Image(_decode(encoded, limits, allocate), hashlib.blake2b(encoded, digest_size=16).digest())
    except ImageTooLarge:
        raise
    except (Pillow.DecompressionBombError, Pillow.DecompressionBombWarning) as error:
        raise ImageTooLarge(f"the image has too many pixels: at most {limits.max_pixels}") from error
    except UnidentifiedImageError as error:
        raise ImageUndecodable(f"not an image of an accepted format ({', '.join(limits.formats)})") from error
    except Exception as error:
        # on hostile bytes Pillow's readers raise nearly everything, from struct.error to AttributeError
        raise ImageUndecodable(f"the image is damaged: {error}") from error


def _decode(encoded: bytes, limits: ImageLimits, allocate: Allocate | None) -> npt.NDArray[np.uint8]:
    with Pillow.open(io.BytesIO(encoded), formats=limits.formats) as opened:
        width, height = opened.size
        if width * height > limits.max_pixels:
            raise ImageTooLarge(f"the image has {width} x {height} pixels: at most {limits.max_pixels}")
        if opened.format == "JPEG" and opened.mode in ("RGB", "L") and _is_common(encoded):
            into = (allocate or _in_own_memory)((height, width, 3))
            if _decode_jpeg(encoded, into):
                return into
            del into
        pixels = _decode_by_pillow(opened)
    if allocate is None:
        return pixels
    into = allocate(pixels.shape)
    into[...] = pixels
    return into


def _decode_by_pillow(opened: Pillow.Image) -> npt.NDArray[np.uint8]:
    if opened.mode.startswith("I;16"):
        grey = (np.asarray(opened) >> 8).astype(np.uint8)
        return np.stack((grey, grey, grey), axis=-1)
    opened.load()
    # or Pillow looks for a substitute colour, with a warning, only to drop it
    opened.info.pop("transparency", None)
    return np.asarray(opened if opened.mode == "RGB" else opened.convert("RGB"))


def _decode_jpeg(encoded: bytes, into: npt.NDArray[np.uint8]) -> bool:
    """Decode a JPEG of which Pillow has read the header; False if there is anything at which only Pillow may judge."""
    try:
        # strict: a warning is an error; and the buffer is no larger than the size that was checked
        pixels = simplejpeg.decode_jpeg(encoded, "RGB", buffer=into, strict=True)
    except ValueError:
        return False
    return bool(pixels.shape == into.shape)


def _is_common(encoded: bytes) -> bool:
    """Say whether a JPEG is sequential or progressive in Huffman's code: of the others not every build has all."""
    at = 2
    while at + 4 <= len(encoded) and encoded[at] == 0xFF:
        marker = encoded[at + 1]
        if marker in _FRAMES:
            return marker in _COMMON_FRAMES
        at += 2 + int.from_bytes(encoded[at + 2 : at + 4])
    return False


def _in_own_memory(shape: tuple[int, ...]) -> npt.NDArray[np.uint8]:
    return np.empty(shape, dtype=np.uint8)
