"""Loads an image from any place that a caller may name, as the engine's input."""

import base64
import binascii
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from stoop_worker.errors import ImageAddressInvalid, ImageNotFound, ImageUndecodable, WorkerError
from stoop_worker.images import ANY_PIXELS, Crops, Image, ImageLimits, PixelLimits, Preparation, load, made_ready

if TYPE_CHECKING:
    from PIL.Image import Image as PillowImage

    ImageSource: TypeAlias = "str | Path | bytes | PillowImage | npt.NDArray[np.uint8]"

__all__ = ["inline", "media_of"]


def media_of(
    source: "ImageSource", preparation: Preparation, pixels: PixelLimits = ANY_PIXELS, *, on_device: bool = False
) -> Crops | Image:
    """Load an image, and cut or resize it, unless the device does so; raises an `ImageError`.

    A string is a path or a `data:` address. An array is RGB, (height, width, 3) uint8.
    """
    return made_ready(_image(source), preparation, pixels=pixels, on_device=on_device)


def _image(source: Any) -> Image:
    if isinstance(source, bytes | bytearray | memoryview):
        return load(bytes(source), ImageLimits())
    if isinstance(source, str) and source.startswith("data:"):
        return load(inline(source, ImageUndecodable), ImageLimits())
    if isinstance(source, str | Path):
        return load(_read(source), ImageLimits())
    if hasattr(source, "convert"):
        return Image.of(np.asarray(source.convert("RGB")))
    return _array(np.asarray(source))


def _array(pixels: npt.NDArray[Any]) -> Image:
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] != 3 or pixels.size == 0:
        raise ImageUndecodable(
            f"an array of {pixels.dtype} {pixels.shape} is not an image: give (height, width, 3) uint8"
        )
    return Image.of(pixels)


def _read(source: str | Path) -> bytes:
    if "://" in str(source):
        raise ImageAddressInvalid(f"{source}: without a queue an image is a path, bytes, a Pillow image or an array")
    try:
        return Path(source).expanduser().read_bytes()
    except OSError as error:
        raise ImageNotFound(f"cannot read {source}: {error.strerror}") from error


def inline(address: str, error: type[WorkerError]) -> bytes:
    """Return the bytes that a `data:` address holds; raises `error` if it holds none."""
    try:
        return base64.b64decode(address.partition(";base64,")[2], validate=True)
    except (ValueError, binascii.Error) as cause:
        raise error("the data: address is not base64") from cause
