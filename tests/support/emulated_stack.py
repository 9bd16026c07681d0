"""The kernel of a decoder's layers in one launch, compiled for the CPU: the same source behind `emulated/device.h`."""

import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import torch

from stoop_worker.kernels.layer_stack import hopper, parallel, pre_norm
from stoop_worker.kernels.layer_stack.sizes import Sizes

__all__ = ["EmulatedKernel", "emulate", "has_gcc"]

EMULATED = Path(__file__).parent / "emulated"
LATENESS = [2, 20, 100]
"""In each turn a copy arrives with a probability of one in this number. Each launch takes the next number."""


def has_gcc() -> bool:
    """Return whether g++ is there to compile the kernel."""
    return shutil.which("g++") is not None


class EmulatedKernel:
    """Stands in for a `CudaKernel`. `edit` changes the source, to show that a fault is found."""

    def __init__(self, sizes: Sizes, edit: tuple[str, str] = ("", "")) -> None:
        defines = [line for line in hopper.source(sizes).splitlines() if line.startswith("#define")]
        package = files("stoop_worker.kernels.layer_stack")
        parts = [package.joinpath(f"{part}.cu").read_text() for part in (*hopper.PARTS[1:], hopper.kernel_of(sizes))]
        text = "\n".join(parts)
        assert edit[0] in text
        lines = [*defines, '#include "layer_stack.h"', text.replace(*edit), CALL]
        self._run = _library("\n".join(lines)).run
        self._launches = 0

    def launch(self, grid: tuple[int, int, int], threads: int, shared_bytes: int, arguments: Sequence[Any]) -> None:
        """Run the kernel to its end; raises `TimeoutError` if a wait in it gives up."""
        self._launches += 1
        lateness = LATENESS[self._launches % len(LATENESS)]
        if not self._run(ctypes.byref(arguments[0]), grid[0], threads, shared_bytes, self._launches, lateness):
            raise TimeoutError("the kernel waits for what does not come, or copies what is not aligned")


def emulate(
    monkeypatch: pytest.MonkeyPatch, programs: int, edit: tuple[str, str] = ("", ""), *, slots: int | None = None
) -> None:
    """Let layers of one row run on an emulated GPU with a given number of multiprocessors.

    A wait there gives up after a second. `slots` limits the ring, which has more slots for small layers than for real
    ones.
    """
    kernels: dict[Sizes, EmulatedKernel] = {}

    def compiled(sizes: Sizes, device: torch.device) -> EmulatedKernel:
        if sizes not in kernels:
            kernels[sizes] = EmulatedKernel(sizes, edit)
        return kernels[sizes]

    monkeypatch.setattr(hopper, "is_hopper", lambda device: True)
    for module in (pre_norm, parallel):
        monkeypatch.setattr(module, "multiprocessors", lambda device: programs)
    monkeypatch.setattr(hopper, "_compiled", compiled)
    monkeypatch.setattr(hopper, "_SECONDS", 1)
    if slots is not None:
        monkeypatch.setattr(Sizes, "slots", property(lambda sizes: slots))
    hopper._shared.cache_clear()


@cache
def _library(text: str) -> ctypes.CDLL:
    options = "-std=c++17", "-O1", "-w", "-shared", "-fPIC", "-I", str(EMULATED)
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "source.cpp"), Path(folder, "kernel.so")
        source.write_text(text, encoding="utf-8")
        subprocess.run(["g++", *options, str(source), "-o", str(library)], check=True)
        return ctypes.CDLL(str(library))


CALL = """
extern "C" int run(const Step* step, int programs, int threads, int shared_bytes, unsigned seed, int lateness) {
  return emulated::launch(programs, threads, shared_bytes, seed, lateness, [=] { layer_stack(*step); });
}
"""
