"""Decodes images to RGB pixels, and checks every limit before it decodes a pixel."""

import hashlib
import io
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import simplejpeg
from PIL import Image as Pillow
from PIL import UnidentifiedImageError

from stoop_worker.errors import ImageError, ImageTooLarge, ImageUndecodable
from stoop_worker.images.structure import lean

__all__ = ["Allocate", "Image", "ImageLimits", "digest_of", "load"]

Allocate = Callable[[tuple[int, ...]], npt.NDArray[np.uint8]]
"""Returns an array of the given shape, which the caller fills."""

# the second byte of the markers that begin a JPEG's frame; C4, C8 and CC are other markers
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_COMMON_FRAMES = frozenset({0xC0, 0xC1, 0xC2})
_COMMON_COLOURS = frozenset({"YCbCr", "RGB", "Gray"})


@dataclass(frozen=True, slots=True)
class ImageLimits:
    """Limits on accepted images: bytes, pixels, and formats by Pillow's names."""

    max_bytes: int = 32 << 20
    max_pixels: int = 64_000_000
    formats: tuple[str, ...] = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")


@dataclass(frozen=True, slots=True)
class Image:
    """RGB pixels (height, width, 3) uint8, with a digest that identifies them.

    `fitted` is the height and width to which the device that encodes the image resizes it first; None leaves it as it
    is.
    """

    pixels: npt.NDArray[np.uint8]
    digest: bytes
    fitted: tuple[int, int] | None = None

    @property
    def size(self) -> tuple[int, int]:
        """The height and width of the image as it is encoded."""
        height, width, _ = self.pixels.shape
        return self.fitted or (height, width)

    @classmethod
    def of(cls, pixels: npt.NDArray[np.uint8]) -> "Image":
        """Wrap RGB pixels (height, width, 3) uint8; the digest covers their values and shape."""
        pixels = np.ascontiguousarray(pixels)
        digest = hashlib.blake2b(repr(pixels.shape).encode(), digest_size=16)
        digest.update(pixels.data)
        return cls(pixels=pixels, digest=digest.digest())


def load(encoded: bytes, limits: ImageLimits, allocate: Allocate | None = None) -> Image:
    """Decode an image's first frame to RGB: alpha dropped, palettes expanded, EXIF rotation ignored.

    The result is that of Pillow's conversion, with one exception: 16-bit greyscale keeps its upper 8 bits, because
    Pillow would make nearly all of it white. simplejpeg's libjpeg-turbo decodes a faultless JPEG straight to RGB: the
    pixels are the same, in half the time. Pillow does not even open it.
    The digest covers the encoded bytes, because hashing the pixels takes half as long as decoding them. The pixels lie
    in the array that `allocate` returns, if it is given.
    Metadata is not read, and a file that would keep a decoder busy for long is refused (see `structure`).
    Raises `ImageTooLarge` (bytes, pixels or work, known before decoding) or `ImageUndecodable`.
    """
    if len(encoded) > limits.max_bytes:
        raise ImageTooLarge(f"the image has {len(encoded)} bytes: at most {limits.max_bytes}")
    try:
        pixels = _decode(lean(encoded, limits.max_pixels), limits, allocate)
        return Image(pixels, digest_of(encoded))
    except ImageError:
        raise
    except (Pillow.DecompressionBombError, Pillow.DecompressionBombWarning) as error:
        raise ImageTooLarge(f"the image has too many pixels: at most {limits.max_pixels}") from error
    except UnidentifiedImageError as error:
        raise ImageUndecodable(f"not an image of an accepted format ({', '.join(limits.formats)})") from error
    except Exception as error:
        # on hostile bytes Pillow's readers raise nearly everything, from struct.error to AttributeError
        raise ImageUndecodable(f"the image is damaged: {error}") from error


def digest_of(encoded: bytes) -> bytes:
    """Return the digest of an image's bytes."""
    # processors have instructions for SHA-256, so it takes half the time of BLAKE2
    return hashlib.sha256(encoded).digest()[:16]


def _decode(encoded: bytes, limits: ImageLimits, allocate: Allocate | None) -> npt.NDArray[np.uint8]:
    if "JPEG" in limits.formats and _is_common_jpeg(encoded):
        decoded = _decode_jpeg(encoded, limits, allocate)
        if decoded is not None:
            return decoded
    with Pillow.open(io.BytesIO(encoded), formats=limits.formats) as opened:
        _check_size(*opened.size, limits)
        pixels = _decode_by_pillow(opened)
    if allocate is None:
        return pixels
    into = allocate(pixels.shape)
    into[...] = pixels
    return into


def _check_size(width: int, height: int, limits: ImageLimits) -> None:
    if width * height > limits.max_pixels:
        raise ImageTooLarge(f"the image has {width} x {height} pixels: at most {limits.max_pixels}")


def _decode_by_pillow(opened: Pillow.Image) -> npt.NDArray[np.uint8]:
    if opened.mode.startswith("I;16"):
        grey = (np.asarray(opened) >> 8).astype(np.uint8)
        return np.stack((grey, grey, grey), axis=-1)
    opened.load()
    # otherwise Pillow warns and looks for a substitute colour, only to drop it
    opened.info.pop("transparency", None)
    return np.asarray(opened if opened.mode == "RGB" else opened.convert("RGB"))


def _decode_jpeg(encoded: bytes, limits: ImageLimits, allocate: Allocate | None) -> npt.NDArray[np.uint8] | None:
    """Decode a JPEG; return None if Pillow has to decode it instead, or to say what is wrong with it."""
    try:
        height, width, colours, _ = simplejpeg.decode_jpeg_header(encoded)
        if colours not in _COMMON_COLOURS:
            return None
        _check_size(width, height, limits)
        into = (allocate or _in_own_memory)((height, width, 3))
        # strict makes a warning an error; the buffer has exactly the size that was checked
        pixels = simplejpeg.decode_jpeg(encoded, "RGB", buffer=into, strict=True)
    except (ValueError, KeyError):  # it has no name for unusual subsampling
        return None
    return into if pixels.shape == into.shape else None


def _is_common_jpeg(encoded: bytes) -> bool:
    """Return whether this is a sequential or progressive JPEG with Huffman coding; not every build decodes others."""
    if not encoded.startswith(b"\xff\xd8"):
        return False
    at = 2
    while at + 4 <= len(encoded) and encoded[at] == 0xFF:
        marker = encoded[at + 1]
        if marker in _FRAMES:
            return marker in _COMMON_FRAMES
        at += 2 + int.from_bytes(encoded[at + 2 : at + 4])
    return False


def _in_own_memory(shape: tuple[int, ...]) -> npt.NDArray[np.uint8]:
    return np.empty(shape, dtype=np.uint8)
