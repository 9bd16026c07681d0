"""How large the engine may be; checked once, when it is made."""

from dataclasses import dataclass

import torch

from worker.errors import ConfigError
from worker.model.config import TextConfig
from worker.model.fp8 import check_device
from worker.model.moondream import Moondream

__all__ = ["EngineConfig", "cache_dtype", "count_pages", "page_bytes"]

_CPU_CONTEXTS = 8
_MOST_CONTEXTS = 1024  # more would only be a longer list of free pages


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """`page_size` in positions; `pages` None takes what the device has; `max_batch` sequences run at once.

    `token_budget` bounds the positions of one step, `crop_budget` the crops that one step encodes, `stall_crops` the
    same while somebody decodes, and so how long a decode waits for images; one image runs even if it alone is over a
    budget. `memory_reserve` is the fraction of a GPU left for activations and graphs.
    `lookahead` starts each step before the last one's readings are known, so that a GPU never waits for the host; it
    costs a row where a request ends unforeseen. None does so on a GPU. `fp8_linears` computes the large products of
    images and prompts in float8 (e4m3), `fp8_cache` keeps keys and values so: quicker, and less exact.
    """

    page_size: int = 16
    pages: int | None = None
    max_batch: int = 64
    token_budget: int = 8192
    crop_budget: int = 64
    stall_crops: int = 27
    prefix_cache: bool = True
    memory_reserve: float = 0.15
    lookahead: bool | None = None
    fp8_linears: bool = False
    fp8_cache: bool = False

    def __post_init__(self) -> None:
        for name in ("page_size", "max_batch", "crop_budget", "stall_crops"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}: make it 1 or more")
        if self.token_budget <= self.max_batch:
            raise ConfigError(
                f"token_budget is {self.token_budget}: make it larger than max_batch, {self.max_batch}, "
                "or a full batch leaves no room for a prompt"
            )
        if not 0 <= self.memory_reserve < 1:
            raise ConfigError(f"memory_reserve is {self.memory_reserve}: make it at least 0 and less than 1")


def count_pages(config: EngineConfig, model: Moondream) -> int:
    """Return how many pages of KV memory to make; `ConfigError` when one full context does not fit."""
    text = model.config.text
    if text.max_context % config.page_size:
        raise ConfigError(f"page_size is {config.page_size}: make it divide the longest context, {text.max_context}")
    # one full context, and a page to copy from where its cached prefix ends inside a page
    needed = text.max_context // config.page_size + 1
    pages = _fitting(config, model, needed) if config.pages is None else config.pages
    if pages < needed:
        raise ConfigError(
            f"{pages} pages of {config.page_size} positions are too few for one full context: give at least {needed}, "
            "a device with more free memory, or a smaller memory_reserve"
        )
    return pages


def cache_dtype(config: EngineConfig, model: Moondream) -> torch.dtype:
    """Return what keys and values are kept as; `ConfigError` where the device has no float8."""
    if not config.fp8_cache:
        return model.dtype
    check_device(model.device, "fp8_cache")
    return torch.float8_e4m3fn


def page_bytes(text: TextConfig, dtype: torch.dtype, page_size: int) -> int:
    """Return the bytes of one page: keys and values of all layers."""
    return 2 * text.n_layers * page_size * text.n_heads * text.head_dim * dtype.itemsize


def _fitting(config: EngineConfig, model: Moondream, needed: int) -> int:
    if model.device.type != "cuda":
        return _CPU_CONTEXTS * needed
    free, total = torch.cuda.mem_get_info(model.device)
    spare = free - int(config.memory_reserve * total)
    fitting = max(0, spare) // page_bytes(model.config.text, cache_dtype(config, model), config.page_size)
    return min(fitting, _MOST_CONTEXTS * needed)
