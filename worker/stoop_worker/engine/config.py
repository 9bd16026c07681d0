"""The engine's limits and budgets, checked once when they are made."""

from dataclasses import dataclass
from typing import Final

import torch

from stoop_worker.engine.spec import KVSpec, Spec
from stoop_worker.errors import ConfigError

__all__ = ["ATTENTION", "FLASHINFER", "TRITON", "EngineConfig", "KVMemory", "check_float8", "count_bytes", "page_bytes"]

TRITON: Final = "triton"
FLASHINFER: Final = "flashinfer"
ATTENTION: Final = ("auto", TRITON, FLASHINFER)
"""The values of `attention`."""

_CPU_CONTEXTS = 8
_MOST_CONTEXTS = 1024  # more would only lengthen the list of free pages
_FLOAT8_CAPABILITY = (8, 9)


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """`page_size` in positions; `pages` None fills the device's free memory; `max_batch` sequences run at once.

    `max_context` caps the longest sequence, and so the pages required; a model's own limit may be lower.
    `token_budget` bounds the positions of one step, `encode_budget` the cost of the media that one step encodes.
    `stall_budget` replaces the latter while a sequence decodes, and so bounds how long a decode waits for media. One
    medium runs even if it exceeds a budget by itself. `memory_reserve` is the fraction of a GPU left for activations
    and graphs.
    While a request of an earlier priority runs, later ones prefill only after every `yield_steps` steps, and
    then one medium at most: a prefill takes as long as a dozen other steps or more. A sixteenth of the batch stays free
    for the first priority.
    `lookahead` starts each step before the last one's head values are known, so that a GPU never waits for the host; it
    wastes a row if a request ends unexpectedly. None turns it on only for a GPU. `fp8_cache` keeps keys and values in
    float8 (e4m3): more of them fit, at lower precision. `attention` chooses the backend of attention.
    """

    page_size: int = 16
    pages: int | None = None
    max_batch: int = 64
    max_context: int = 32_768
    token_budget: int = 8192
    encode_budget: int = 64
    stall_budget: int = 27
    yield_steps: int = 16
    prefix_cache: bool = True
    memory_reserve: float = 0.15
    lookahead: bool | None = None
    fp8_cache: bool = False
    attention: str = "auto"

    def __post_init__(self) -> None:
        for name in ("page_size", "max_batch", "max_context", "encode_budget", "stall_budget"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}: make it 1 or more")
        if self.token_budget <= self.max_batch:
            raise ConfigError(
                f"token_budget is {self.token_budget}: make it larger than max_batch, {self.max_batch}, "
                "or a full batch leaves no room for a prompt"
            )
        if self.attention not in ATTENTION:
            raise ConfigError(f"attention is {self.attention!r}: choose one of {', '.join(ATTENTION)}")
        if not 0 <= self.memory_reserve < 1:
            raise ConfigError(f"memory_reserve is {self.memory_reserve}: make it at least 0 and less than 1")

    @property
    def late_budget(self) -> int:
        """The cost of media in a step without the first priority, whose next request would wait for the step's end."""
        return max(1, self.stall_budget // 2)

    @property
    def seats_kept(self) -> int:
        """The number of seats that only sequences of the first priority may take."""
        return self.max_batch // 16


@dataclass(frozen=True, slots=True)
class KVMemory:
    """The memory for a model's keys and values: `pages` pages of `dtype`, for sequences up to `max_context`."""

    pages: int
    max_context: int
    dtype: torch.dtype

    @classmethod
    def of(cls, config: EngineConfig, spec: Spec, *, device: torch.device, dtype: torch.dtype) -> "KVMemory":
        """Size it for a device and the activations' `dtype`; raises `ConfigError` if one full context does not fit."""
        context = min(spec.max_context, config.max_context)
        if context % config.page_size:
            raise ConfigError(f"page_size is {config.page_size}: make it divide the longest context, {context}")
        if config.fp8_cache:
            check_float8(device, "fp8_cache")
            dtype = torch.float8_e4m3fn
        # one full context, and a page to copy from if its cached prefix ends inside a page
        needed = context // config.page_size + 1
        pages = config.pages
        if pages is None:
            kept = count_bytes(config, spec.vocab_size)
            pages = _fitting(config, page_bytes(spec.kv, dtype, config.page_size), device, needed, kept)
        if pages < needed:
            raise ConfigError(
                f"{pages} pages of {config.page_size} positions are too few for one full context of {context}: give at "
                f"least {needed}, a smaller max_context, or a device with more free memory"
            )
        return cls(pages, context, dtype)


def check_float8(device: torch.device, setting: str) -> None:
    """Raise `ConfigError` if a device has no float8; `setting` names the option that needs it."""
    if device.type == "cuda" and torch.cuda.get_device_capability(device) < _FLOAT8_CAPABILITY:
        raise ConfigError(f"{setting} needs a GPU that knows float8, such as an H100 or an L4: leave it off")


def page_bytes(kv: KVSpec, dtype: torch.dtype, page_size: int) -> int:
    """Return the bytes of one page: keys and values of all layers."""
    return 2 * kv.layers * page_size * kv.heads * kv.head_dim * dtype.itemsize


def count_bytes(config: EngineConfig, vocab_size: int) -> int:
    """Return the bytes of the counts for penalties: an int32 for each id and each sequence that can run."""
    return (config.max_batch + 1) * vocab_size * torch.int32.itemsize


def _fitting(config: EngineConfig, size: int, device: torch.device, needed: int, kept: int) -> int:
    if device.type != "cuda":
        return _CPU_CONTEXTS * needed
    free, total = torch.cuda.mem_get_info(device)
    spare = free - int(config.memory_reserve * total) - kept
    return min(max(0, spare) // size, _MOST_CONTEXTS * needed)
