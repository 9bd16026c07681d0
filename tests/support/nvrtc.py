"""Compiles CUDA C++ for Hopper without a device, by a wheel with the compiler that ships with torch for CUDA."""

import ctypes
from importlib.util import find_spec
from pathlib import Path

from stoop_worker.kernels.hopper import compiler

__all__ = ["library"]


def library() -> ctypes.CDLL | None:
    """Load the compiler; return None where its wheel is not installed."""
    spec = find_spec("nvidia")
    folders = [Path(folder) for folder in (spec.submodule_search_locations or ())] if spec is not None else []
    for folder in folders:
        for path in folder.glob("*/lib/libnvrtc.so.*"):
            for builtins in path.parent.glob("libnvrtc-builtins.so.*"):
                ctypes.CDLL(str(builtins))  # the compiler asks for it by its name alone
            return compiler.load_nvrtc(str(path))
    return None
