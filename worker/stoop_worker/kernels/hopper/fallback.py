"""Gives up a kernel that has a slower stand-in when it does not compile, or does not load, on this machine."""

import structlog
import torch

from stoop_worker.kernels.hopper.compiler import CudaKernel, compile_kernel

__all__ = ["Unusable", "is_usable", "try_to_compile"]

log = structlog.get_logger(__name__)

_given_up: set[str] = set()


class Unusable(Exception):
    """The kernel cannot be used in this process: call its stand-in."""


def is_usable(name: str) -> bool:
    """Return whether no source of this kernel has failed in this process."""
    return name not in _given_up


def try_to_compile(source: str, name: str, device: torch.device, *, shared_bytes: int) -> CudaKernel:
    """Compile a source for Hopper as by `compile_kernel`.

    A failure is logged, and raises `Unusable`; the kernel is then not usable until the process ends.
    """
    try:
        return compile_kernel(source, name, device, architecture="sm_90a", shared_bytes=shared_bytes)
    except (RuntimeError, OSError) as error:
        if is_usable(name):
            reason = str(error).partition("\n")[0]
            log.warning("a kernel cannot be used here: a slower one takes its place", kernel=name, reason=reason)
        _given_up.add(name)
        raise Unusable(name) from error
