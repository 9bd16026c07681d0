"""The forms of an image that a caller may pass, and the bytes that are uploaded.

Files and bytes are uploaded unchanged. Pixels from a JPEG (a Pillow image with that `format`) become a JPEG of quality
95 with full colour resolution; all other pixels become a PNG, without loss. For an image that was lossy already, JPEG
loses nothing visible, and takes a tenth of the time and half the bytes. As in Moondream's client, alpha is dropped and
EXIF rotation is ignored.
"""

import base64
import hashlib
import io
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from stoop.errors import ImageUnreadable
from stoop.images.local_file import path_of, read_file

if TYPE_CHECKING:
    from PIL.Image import Image as PillowImage

    ImageSource: TypeAlias = "str | Path | bytes | PillowImage | ImageArray | EncodedImage"
    Loaded: TypeAlias = bytes | PillowImage

__all__ = ["EncodedImage", "ImageArray", "encoded", "fingerprint", "identify", "inline", "is_address", "load"]

_ADDRESSES = ("s3://", "data:", "https://", "http://")
_MOST_BYTES = 256 << 20  # far above what workers take by default, and far below what a device or a video may hold
_TAKEN = "give an address, a path, bytes, a Pillow image or an array"


class ImageArray(Protocol):
    """A numpy-like array: (height, width), (height, width, 3) or (height, width, 4), uint8, colours as RGB."""

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """The array's memory, shape and type."""


@dataclass(frozen=True, slots=True)
class EncodedImage:
    """An image that workers can already read, at the address `image_url`; every method accepts it as the image."""

    image_url: str


def is_address(image: object) -> bool:
    """Return whether the image is already an address, which is sent unchanged."""
    return isinstance(image, str) and image.startswith(_ADDRESSES)


def load(image: object) -> "Loaded":
    """Return the bytes of a path or a buffer, or the pixels as a Pillow image. Raises `ImageUnreadable`."""
    if isinstance(image, bytes | bytearray | memoryview):
        return bytes(image)
    if isinstance(image, str | Path):
        return _read(path_of(image, ImageUnreadable))
    if hasattr(image, "save") and hasattr(image, "convert"):
        return image  # type: ignore[return-value]
    if hasattr(image, "__array_interface__"):  # checked last, because Pillow images have it too
        return _from_array(image)
    raise ImageUnreadable(f"{type(image).__name__} is not an image: {_TAKEN}")


def fingerprint(loaded: "Loaded") -> str:
    """Return a digest that identifies these bytes or pixels, without encoding them."""
    if isinstance(loaded, bytes):
        return hashlib.sha256(loaded).hexdigest()
    header = f"{loaded.format} {loaded.mode} {loaded.size} ".encode()
    try:
        return hashlib.sha256(header + loaded.convert("RGB").tobytes()).hexdigest()
    except (OSError, ValueError, SyntaxError) as error:  # Pillow decodes at first use
        raise ImageUnreadable(f"the image cannot be decoded: {error}") from error


def encoded(loaded: "Loaded") -> bytes:
    """Return the bytes to upload. Raises `ImageUnreadable`."""
    if isinstance(loaded, bytes):
        return loaded
    written = io.BytesIO()
    try:
        pixels = loaded.convert("RGB")
        if loaded.format == "JPEG":
            pixels.save(written, "JPEG", quality=95, subsampling=0)
        else:
            pixels.save(written, "PNG", compress_level=1)
    except (OSError, ValueError, SyntaxError) as error:
        raise ImageUnreadable(f"the image cannot be decoded: {error}") from error
    return written.getvalue()


def identify(image: bytes, name: str | Path) -> tuple[str, str]:
    """Return Pillow's name of the format and its media type. Raises `ImageUnreadable` if it is not an image."""
    import PIL.Image

    try:
        with warnings.catch_warnings():
            # the worker has its own limit on pixels; only the header is read here
            warnings.simplefilter("ignore", PIL.Image.DecompressionBombWarning)
            with PIL.Image.open(io.BytesIO(image)) as opened:
                image_format = opened.format or ""
    except (OSError, ValueError, SyntaxError, PIL.Image.DecompressionBombError):
        raise ImageUnreadable(f"{name} is not an image that Pillow can read") from None
    return image_format, PIL.Image.MIME.get(image_format, "application/octet-stream")


def inline(address: str) -> bytes:
    """Return the bytes in a `data:` address. Raises `ImageUnreadable`."""
    try:
        return base64.b64decode(address.partition(",")[2], validate=True)
    except ValueError:
        raise ImageUnreadable("the data: address is not base64") from None


def _read(path: Path) -> bytes:
    return read_file(path, ImageUnreadable, _MOST_BYTES, wanted="one image file", smaller="one image file")


def _from_array(array: Any) -> "PillowImage":
    import PIL.Image

    described = array.__array_interface__
    shape, kind = described["shape"], described["typestr"]
    colours = shape[2:] if len(shape) == 3 else (1,)
    if len(shape) not in (2, 3) or colours not in ((1,), (3,), (4,)) or 0 in shape:
        raise ImageUnreadable(f"an array of shape {shape} is not an image: give (height, width, 3), colours as RGB")
    if kind[1:] != "u1":
        raise ImageUnreadable(
            f"the array holds {kind}: give uint8 from 0 to 255, as (255 * array).astype('uint8') does"
        )
    return PIL.Image.fromarray(array.reshape(shape[:2]) if colours == (1,) else array)
