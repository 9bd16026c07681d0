"""All adapters of a folder, read at the start and numbered from 1. One that cannot be used is kept with the reason.

K columns of all adapters, I in, O out.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from stoop_worker.engine.model import RequestInvalid
from stoop_worker.errors import ConfigError
from stoop_worker.kernels.moe import ExpertAdapter
from stoop_worker.models.moondream.adapters.files import SUFFIXES, Pairs, Place, key_of, read_pairs
from stoop_worker.models.moondream.adapters.numbers import Loaded
from stoop_worker.models.moondream.config_parts import TextConfig
from stoop_worker.models.moondream.lora import Adapter, BlockAdapters, Corrections

__all__ = ["AdapterBank", "read_adapters"]


@dataclass(frozen=True, slots=True)
class AdapterBank:
    """All adapters of a worker by id, on the model's device. `broken` has the reason for each that cannot be used."""

    loaded: Mapping[str, Loaded] = field(default_factory=dict)
    broken: Mapping[str, str] = field(default_factory=dict)
    blocks: tuple[BlockAdapters, ...] = ()
    ranks: tuple[int, int] = (0, 0)

    def __bool__(self) -> bool:
        return bool(self.loaded)

    def take(self, adapter: str | None) -> Loaded:
        """Return an adapter's number and key; number 0 means no adapter; raises `RequestInvalid`."""
        if adapter is None:
            return Loaded(0, 0)
        if adapter in self.broken:
            raise RequestInvalid(f"the adapter {adapter!r} cannot be used: {self.broken[adapter]}")
        if adapter not in self.loaded:
            # the names of others may belong to other tenants
            advice = "check its id" if self.loaded else "start the worker with --adapters"
            raise RequestInvalid(f"there is no adapter {adapter!r} here: {advice}")
        return self.loaded[adapter]

    def give_back(self, number: int) -> None:
        """Do nothing: every adapter stays."""

    def corrections(self, numbers_T: Tensor, like: Tensor) -> Corrections:
        """Return the corrections for rows of these numbers."""
        return Corrections.of(self.blocks, numbers_T, count=len(self.loaded) + 1, rank=self.ranks[0], like=like)


def read_adapters(folder: Path, text: TextConfig, *, device: torch.device, dtype: torch.dtype) -> AdapterBank:
    """Read every adapter file of a folder; its name without the suffix is the adapter's id."""
    if not folder.is_dir():
        raise ConfigError(f"--adapters {folder}: there is no such folder")
    whole: dict[str, Pairs] = {}
    broken: dict[str, str] = {}
    for path in sorted(path for path in folder.iterdir() if path.suffix in SUFFIXES):
        try:
            whole[path.stem] = read_pairs(path, text)
        except Exception as error:  # a damaged file may raise anything, and must fail only its own jobs
            broken[path.stem] = str(error)
    loaded = {name: Loaded(number, key_of(pairs)) for number, (name, pairs) in enumerate(whole.items(), start=1)}
    lay = partial(_lay, list(whole.values()), device=device, dtype=dtype)
    ranks = _ranks(list(whole.values()))
    blocks = tuple(_block(layer, lay, ranks[1]) for layer in range(text.n_layers)) if whole else ()
    return AdapterBank(loaded, broken, blocks, ranks)


def _ranks(adapters: list[Pairs]) -> tuple[int, int]:
    """Return the largest rank of plain layers, and that of experts."""

    def largest(*, experts: bool) -> int:
        return max(
            (a.shape[-2] for pairs in adapters for a, _ in pairs.values() if (a.ndim == 3) is experts), default=1
        )

    return largest(experts=False), largest(experts=True)


def _lay(
    adapters: list[Pairs], place: Place, *, device: torch.device, dtype: torch.dtype
) -> tuple[Tensor, Tensor] | None:
    """Lay one layer's pairs of all adapters side by side, from number 1 on: (…, K, I) and (…, K, O)."""
    given = [(number, pairs[place]) for number, pairs in enumerate(adapters, start=1) if place in pairs]
    if not given:
        return None
    a, b = given[0][1]
    rank = _ranks(adapters)[a.ndim == 3]
    count = rank * (len(adapters) + 1)
    a_all = torch.zeros(*a.shape[:-2], count, a.shape[-1], dtype=dtype, device=device)
    b_all = torch.zeros(*b.shape[:-2], count, b.shape[-2], dtype=dtype, device=device)
    for number, (one_a, one_b) in given:
        columns = slice(number * rank, number * rank + one_a.shape[-2])
        a_all[..., columns, :] = one_a.to(device, dtype)
        b_all[..., columns, :] = one_b.to(device, dtype).transpose(-1, -2)
    return a_all, b_all


def _block(layer: int, lay: "partial[tuple[Tensor, Tensor] | None]", expert_rank: int) -> BlockAdapters:
    linears = dict(_linears(layer, lay))
    up, down = lay((layer, "up")), lay((layer, "down"))
    if up is None or down is None:
        return BlockAdapters(linears)
    return BlockAdapters(linears, ExpertAdapter(*up, *down, rank=expert_rank))


def _linears(layer: int, lay: "partial[tuple[Tensor, Tensor] | None]") -> Iterator[tuple[str, Adapter]]:
    for name in ("qkv", "proj", "fc1", "fc2"):
        pair = lay((layer, name))
        if pair is not None:
            yield name, Adapter(*pair)
