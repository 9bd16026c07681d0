"""Replaces a kernel by its slower stand-in if it does not compile or load on this machine."""

import torch

from stoop_worker.kernels.hopper.compiler import CudaKernel, compile_kernel

__all__ = ["Unusable", "given_up", "is_usable", "try_to_compile"]

_given_up: dict[str, str] = {}


class Unusable(Exception):
    """The kernel cannot be used in this process: call its stand-in."""


def is_usable(name: str) -> bool:
    """Return whether no source of this kernel has failed in this process."""
    return name not in _given_up


def given_up() -> dict[str, str]:
    """For each kernel that is not usable in this process, return the first line of its error."""
    return dict(_given_up)


def try_to_compile(source: str, name: str, device: torch.device, *, shared_bytes: int) -> CudaKernel:
    """Compile a source for Hopper as by `compile_kernel`.

    Raises `Unusable` if that fails; the kernel is then not usable until the process ends.
    """
    try:
        return compile_kernel(source, name, device, architecture="sm_90a", shared_bytes=shared_bytes)
    except (RuntimeError, OSError) as error:
        _given_up.setdefault(name, str(error).partition("\n")[0])
        raise Unusable(name) from error
