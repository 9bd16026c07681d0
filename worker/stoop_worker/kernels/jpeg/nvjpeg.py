"""JPEGs to pixels on a GPU with JPEG engines, by NVIDIA's nvJPEG. N bytes, H rows, W columns."""

import ctypes
import os
from ctypes import POINTER, byref, c_int, c_size_t, c_ubyte, c_void_p
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

__all__ = ["JpegDecoder", "decoder_of"]

# numbers from nvjpeg.h
_HARDWARE: Final = 3
_INTERPOLATE_COLOURS: Final = 1 << 5  # as libjpeg-turbo does
_INTERLEAVED_RGB: Final = 5
_CHANNELS: Final = 4


class _Picture(ctypes.Structure):
    """nvjpegImage_t: the address and the row's bytes of each channel; interleaved pixels use the first."""

    _fields_ = [("channels", c_void_p * _CHANNELS), ("pitches", c_size_t * _CHANNELS)]


class JpegDecoder:
    """The JPEG engines of one device. Raises `OSError` without the library, `RuntimeError` without the engines."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._read: npt.NDArray[np.uint8] | None = None
        self._library = _load()
        self._handle = c_void_p()
        with torch.cuda.device(device):
            torch.cuda.synchronize()  # creates the context that the library needs
            self._check(self._library.nvjpegCreateEx(_HARDWARE, None, None, _INTERPOLATE_COLOURS, byref(self._handle)))
            self._state = c_void_p()
            self._check(self._library.nvjpegJpegStateCreate(self._handle, byref(self._state)))
            # batches of one picture: the form of decoding that the engines run
            self._check(self._library.nvjpegDecodeBatchedInitialize(self._handle, self._state, 1, 1, _INTERLEAVED_RGB))

    def decode(self, encoded: npt.NDArray[np.uint8], height: int, width: int) -> Tensor | None:
        """Start decoding a JPEG (N,) on the current stream, to (H, W, 3) uint8; None if the engines do not take it.

        The library waits for the JPEG before, if its decoding goes on.
        """
        if self._size(encoded) != (height, width):
            return None  # the library would write beyond the tensor
        pixels_HWC = torch.empty((height, width, 3), dtype=torch.uint8, device=self._device)
        picture = _Picture((pixels_HWC.data_ptr(),), (3 * width,))
        read = encoded.copy()
        status = self._library.nvjpegDecodeBatched(
            self._handle,
            self._state,
            byref(c_void_p(read.ctypes.data)),
            byref(c_size_t(encoded.nbytes)),
            byref(picture),
            c_void_p(torch.cuda.current_stream(self._device).cuda_stream),
        )
        # the library may still read the bytes after the call, and the caller may reuse its memory; the next call waits
        self._read = read
        return None if status else pixels_HWC

    def _size(self, encoded: npt.NDArray[np.uint8]) -> tuple[int, int] | None:
        count, sampling, widths, heights = c_int(), c_int(), (c_int * _CHANNELS)(), (c_int * _CHANNELS)()
        status = self._library.nvjpegGetImageInfo(
            self._handle,
            encoded.ctypes.data_as(POINTER(c_ubyte)),
            c_size_t(encoded.nbytes),
            byref(count),
            byref(sampling),
            widths,
            heights,
        )
        return None if status or count.value != 3 else (heights[0], widths[0])

    def _check(self, status: int) -> None:
        if status:
            raise RuntimeError(f"nvJPEG answered {status}")


@cache
def decoder_of(device: torch.device) -> JpegDecoder:
    """Return the device's decoder, the same for all callers."""
    return JpegDecoder(device)


def _load() -> ctypes.CDLL:
    """Load the library of torch's CUDA version: the system's, the one of NVIDIA's wheels, or the CUDA toolkit's."""
    if torch.version.cuda is None:
        raise OSError("this build of torch has no CUDA")
    name = f"libnvjpeg.so.{torch.version.cuda.split('.')[0]}"
    spec = find_spec("nvidia")
    folders = [Path(folder) for folder in (spec.submodule_search_locations or ())] if spec is not None else []
    wheels = [path for folder in folders for path in folder.glob(f"*/lib/{name}")]
    toolkit = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "lib64" / name
    for place in (name, *wheels, toolkit):
        try:
            return ctypes.CDLL(str(place))
        except OSError:
            continue
    raise OSError(f"{name} is not installed")
