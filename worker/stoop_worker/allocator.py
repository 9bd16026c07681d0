"""Makes the C library's allocator return large blocks to the system."""

import contextlib
import ctypes
from typing import Final

__all__ = ["return_large_blocks"]

_MMAP_THRESHOLD: Final = -3  # M_MMAP_THRESHOLD of glibc's malloc.h
_ARENA_MAX: Final = -8  # M_ARENA_MAX
_LARGE_BYTES: Final = 1 << 20
_ARENAS: Final = 4


def return_large_blocks() -> None:
    """Return freed blocks of a megabyte or more to the system at once; does nothing without glibc.

    By default, once glibc has freed a block of up to 32 MB, each of its arenas keeps blocks of that size for later.
    Threads create many arenas, so decoding images on a few dozen threads would hold on to gigabytes.
    """
    with contextlib.suppress(AttributeError, OSError, TypeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_MMAP_THRESHOLD, _LARGE_BYTES)
        mallopt(_ARENA_MAX, _ARENAS)
