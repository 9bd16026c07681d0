"""Chooses the backend of attention: our kernels, or the library FlashInfer."""

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import torch

from stoop_worker.engine.config import FLASHINFER, TRITON, KVMemory
from stoop_worker.engine.model import Model
from stoop_worker.errors import ConfigError
from stoop_worker.kernels.backend import has_triton
from stoop_worker.kernels.paged_attention import HEAD_DIMS
from stoop_worker.kernels.paged_attention.flashinfer import FLASHINFER_HEAD_DIMS

__all__ = ["AttentionChoice", "AttentionFacts", "choose_attention", "flashinfer_lacks", "without_flashinfer"]

_REFERENCE: Final = "reference"
_HALVES = (torch.bfloat16, torch.float16)
_LEAST_CAPABILITY = (8, 0)
_HOPPER = (9, 0)

_FASTER_ON_HOPPER: Final[Mapping[int, tuple[str, str]]] = {64: (TRITON, TRITON), 128: (TRITON, TRITON)}
"""The faster backend of prefills and of decodes by head dim, as PERFORMANCE.md has them measured."""


@dataclass(frozen=True, slots=True)
class AttentionChoice:
    """The backends of prefills and of decodes, each `reference`, `triton` or `flashinfer`, and the reason.

    `triton` also stands for our kernels in CUDA C++, which run on Hopper alone.
    """

    prefill: str
    decode: str
    why: str


@dataclass(frozen=True, slots=True)
class AttentionFacts:
    """The facts that decide. `capability` is None without a CUDA device; `query_heads` is the spec's.

    `lacks` is the requirement of FlashInfer that this machine does not meet, with the remedy, or None.
    """

    capability: tuple[int, int] | None
    query_heads: int | None
    head_dim: int
    dtype: torch.dtype
    kv_dtype: torch.dtype
    triton: bool
    lacks: Callable[[], str | None]

    @classmethod
    def of(cls, model: Model, memory: KVMemory) -> "AttentionFacts":
        """Return a model's facts on its device."""
        cuda = model.device.type == "cuda"
        return cls(
            capability=torch.cuda.get_device_capability(model.device) if cuda else None,
            query_heads=model.spec.query_heads,
            head_dim=model.spec.kv.head_dim,
            dtype=model.dtype,
            kv_dtype=memory.dtype,
            triton=has_triton(),
            lacks=flashinfer_lacks,
        )

    def obstacle(self) -> str | None:
        """Return why FlashInfer cannot run here; None if it can."""
        if self.capability is None or self.capability < _LEAST_CAPABILITY:
            return "FlashInfer needs an NVIDIA GPU of compute capability 8.0 or higher"
        if self.query_heads is None:
            return "FlashInfer cannot plan this model's attention, which follows page lists of its own"
        if self.head_dim not in FLASHINFER_HEAD_DIMS:
            return f"FlashInfer serves heads of 64 or 128 channels, and this model's have {self.head_dim}"
        if self.dtype not in _HALVES:
            return f"FlashInfer computes in bfloat16, not in {str(self.dtype).removeprefix('torch.')}"
        if self.kv_dtype != self.dtype:
            return "FlashInfer reads keys and values in the model's dtype: leave --fp8-cache off"
        if not self.triton:
            return "FlashInfer computes only attention, and the other kernels need Triton: pip install 'stoop[gpu]'"
        return self.lacks()


def choose_attention(asked: str, facts: AttentionFacts) -> AttentionChoice:
    """Choose the backends; raises `ConfigError` if the one asked for cannot run."""
    if asked == FLASHINFER:
        obstacle = facts.obstacle()
        if obstacle is not None:
            raise ConfigError(f"--attention flashinfer: {obstacle}; or use --attention auto")
        return AttentionChoice(FLASHINFER, FLASHINFER, "asked for")
    own, why = _own(facts)
    if asked == TRITON:
        if own != TRITON:
            raise ConfigError(f"--attention triton: {why}; use --attention auto")
        return AttentionChoice(TRITON, TRITON, "asked for")
    return _fastest(facts) if own == TRITON else AttentionChoice(own, own, why)


def without_flashinfer(asked: str, error: Exception) -> AttentionChoice:
    """Choose our kernels after FlashInfer's did not load; raises `ConfigError` if FlashInfer was asked for."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    why = f"FlashInfer's kernels do not load: {lines[0]}"
    if asked == FLASHINFER:
        raise ConfigError(f"--attention flashinfer: {why}; check CUDA's nvcc, or use --attention auto") from error
    return AttentionChoice(TRITON, TRITON, why)


def _own(facts: AttentionFacts) -> tuple[str, str]:
    """Return whether our kernels run here or the reference, and why."""
    if facts.capability is None:
        return _REFERENCE, "there is no CUDA device"
    if not facts.triton:
        return _REFERENCE, "Triton is not installed"
    if facts.head_dim not in HEAD_DIMS:
        return _REFERENCE, f"our kernels do not take heads of {facts.head_dim} channels"
    return TRITON, "our kernels run here"


def _fastest(facts: AttentionFacts) -> AttentionChoice:
    assert facts.capability is not None, "our kernels run on CUDA devices"
    name = ".".join(map(str, facts.capability))
    if facts.capability == _HOPPER:
        prefill, decode = _FASTER_ON_HOPPER.get(facts.head_dim, (TRITON, TRITON))
        measured = "measured" if facts.head_dim in _FASTER_ON_HOPPER else "not measured, but ours are made for it:"
        why = f"{measured} on compute capability {name} with heads of {facts.head_dim} channels"
    else:
        prefill, decode = FLASHINFER, FLASHINFER
        why = f"our kernels for Hopper do not run on compute capability {name}"
    if FLASHINFER not in (prefill, decode):
        return AttentionChoice(prefill, decode, why)
    obstacle = facts.obstacle()
    if obstacle is None:
        return AttentionChoice(prefill, decode, why)
    return AttentionChoice(TRITON, TRITON, obstacle)


def flashinfer_lacks() -> str | None:
    """Return the requirement of FlashInfer that this machine does not meet, with the remedy; None if it can run."""
    if find_spec("flashinfer") is None:
        return "FlashInfer is not installed: pip install 'stoop[flashinfer]'"
    if find_spec("flashinfer_jit_cache") is None:  # its kernels compiled beforehand
        if not _has_nvcc():
            return "FlashInfer compiles its kernels: install CUDA's nvcc, or the package flashinfer-jit-cache"
        if shutil.which("ninja") is None:
            return "FlashInfer compiles its kernels: install ninja, and have its folder in PATH"
    try:
        import_module("flashinfer")
    except ImportError as error:
        return f"FlashInfer cannot be imported: {error}"
    return None


def _has_nvcc() -> bool:
    """Look where FlashInfer looks."""
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    if home is None and shutil.which("nvcc"):
        return True
    return Path(os.environ.get("FLASHINFER_NVCC") or f"{home or '/usr/local/cuda'}/bin/nvcc").is_file()
