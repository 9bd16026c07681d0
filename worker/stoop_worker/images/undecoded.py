"""JPEGs that stay as they are until the device that encodes them has decoded them."""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt
import simplejpeg

from stoop_worker.errors import ImageTooLarge
from stoop_worker.images.load import Allocate, ImageLimits, digest_of
from stoop_worker.images.patches import ANY_PIXELS, MOST_EXCESS, PatchRule, PixelLimits, fitting_size
from stoop_worker.images.structure import frame_kind, lean

__all__ = ["Jpeg", "left_undecoded"]

_START, _END = b"\xff\xd8", b"\xff\xd9"
_BASELINE: Final = 0xC0
_SAMPLINGS: Final = frozenset({"444", "422", "420"})
_MOST_PIXELS: Final = 1 << 24  # the decoder's own memory for a larger image would be missing elsewhere


@dataclass(frozen=True, slots=True)
class Jpeg:
    """The bytes of a JPEG, `encoded` (N,) uint8, and the height and width of its pixels.

    `digest` and `fitted` are those of an `Image`.
    """

    encoded: npt.NDArray[np.uint8]
    decoded_size: tuple[int, int]
    digest: bytes
    fitted: tuple[int, int] | None = None

    @property
    def size(self) -> tuple[int, int]:
        """The height and width of the image as it is encoded."""
        return self.fitted or self.decoded_size


def left_undecoded(
    encoded: bytes,
    limits: ImageLimits,
    rule: PatchRule | None = None,
    allocate: Allocate | None = None,
    *,
    pixels: PixelLimits = ANY_PIXELS,
) -> Jpeg | None:
    """Return a JPEG for the decoder of a GPU, without its metadata; None if `load` has to decode or refuse the file.

    That decoder takes photos in the usual form: sequential, 8 bits, YCbCr. It does not say if one is damaged, so a file
    that ends early is left to `load`. By a `rule` the device resizes the image next, within a job's limits `pixels`,
    unless it is much too large. The bytes lie in the array that `allocate` returns, if it is given.
    """
    if not (encoded.startswith(_START) and encoded.endswith(_END)) or len(encoded) > limits.max_bytes:
        return None
    rule = rule and rule.within(pixels)
    most = min(limits.max_pixels, _MOST_PIXELS, _MOST_PIXELS if rule is None else MOST_EXCESS * rule.max_pixels)
    kept, size = _read(encoded, most)
    if "JPEG" not in limits.formats or size is None:
        return None
    into = np.empty(len(kept), dtype=np.uint8) if allocate is None else allocate((len(kept),))
    into[:] = np.frombuffer(kept, dtype=np.uint8)
    jpeg = Jpeg(into, size, digest_of(encoded))
    return jpeg if rule is None else replace(jpeg, fitted=fitting_size(*size, rule))


def _read(encoded: bytes, most_pixels: int) -> tuple[bytes, tuple[int, int] | None]:
    """Return the file without its metadata, and its height and width if its form is usual and its size allowed."""
    try:
        kept = lean(encoded, most_pixels)
        height, width, colours, sampling = simplejpeg.decode_jpeg_header(kept)
    except (ImageTooLarge, ValueError, KeyError):  # it has no name for unusual subsampling
        return encoded, None
    usual = frame_kind(kept) == _BASELINE and colours == "YCbCr" and sampling in _SAMPLINGS
    return kept, (height, width) if usual and height * width <= most_pixels else None
