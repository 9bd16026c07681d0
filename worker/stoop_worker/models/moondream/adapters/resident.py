"""A few adapters at a time: each is read when a request first names it, and replaces the least recently used one. The
tensors of all places are made at the start and only written to later, so CUDA graphs read the current adapters.

K columns of all places, R rank, I in, O out.
"""

from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

import torch
from torch import Tensor

from stoop_worker.engine.model import RequestInvalid
from stoop_worker.errors import ConfigError
from stoop_worker.kernels.moe import ExpertAdapter
from stoop_worker.models.moondream.adapters.files import SUFFIXES, Pairs, key_of, read_pairs, shape_at
from stoop_worker.models.moondream.adapters.numbers import Loaded
from stoop_worker.models.moondream.config_parts import TextConfig
from stoop_worker.models.moondream.lora import Adapter, BlockAdapters, Corrections

__all__ = ["ResidentAdapters"]

_PLAIN = ("qkv", "proj", "fc1", "fc2")


@dataclass(slots=True)
class _Resident:
    loaded: Loaded
    users: int = 0


class ResidentAdapters:
    """The adapters `<id>.safetensors` and `<id>.pt` of a folder, `count` of them on the model's device at a time.

    `rank` is the largest rank of an adapter; each expert has its share of it, rank // experts per token. A file that
    changes is read again only after its adapter has left its place.
    """

    def __init__(self, folder: Path, text: TextConfig, *, count: int, rank: int, like: Tensor) -> None:
        if not folder.is_dir():
            raise ConfigError(f"--adapters {folder}: there is no such folder")
        moe = text.moe
        self._folder, self._text = folder, text
        self.ranks = (rank, max(1, rank // moe.experts_per_token) if moe else 1)
        self._count = count
        self.blocks = tuple(self._empty_block(layer, like) for layer in range(text.n_layers))
        self._resident: OrderedDict[str, _Resident] = OrderedDict()  # the one used longest ago first
        self._reading = Lock()  # one request at a time looks for a place
        self._lock = Lock()  # guards the residents' users, for the moment of a change

    def __bool__(self) -> bool:
        return True

    def take(self, adapter: str | None) -> Loaded:
        """Return an adapter's number and key, reading its file if necessary, and keep its place until `give_back`."""
        if adapter is None:
            return Loaded(0, 0)
        with self._reading:
            found = self._find(adapter) or self._read(adapter)
            with self._lock:
                found.users += 1
            return found.loaded

    def give_back(self, number: int) -> None:
        """End one request's use of a place."""
        with self._lock:
            for resident in self._resident.values():
                resident.users -= resident.loaded.number == number

    def corrections(self, numbers_T: Tensor, like: Tensor) -> Corrections:
        """Return the corrections for rows of these numbers."""
        return Corrections.of(self.blocks, numbers_T, count=self._count + 1, rank=self.ranks[0], like=like)

    def _find(self, adapter: str) -> _Resident | None:
        with self._lock:
            if adapter in self._resident:
                self._resident.move_to_end(adapter)
            return self._resident.get(adapter)

    def _read(self, adapter: str) -> _Resident:
        path = next((path for path in self._paths(adapter) if path.is_file()), None)
        if path is None:
            raise RequestInvalid(f"there is no adapter {adapter!r} here")
        try:
            pairs = read_pairs(path, self._text)
            self._check_place(pairs)
        except Exception as error:  # a damaged file may raise anything, and must fail only its own jobs
            raise RequestInvalid(f"the adapter {adapter!r} cannot be used: {error}") from error
        number = self._free_number()
        self._write(number, pairs)
        with self._lock:
            found = self._resident[adapter] = _Resident(Loaded(number, key_of(pairs)))
        return found

    def _paths(self, adapter: str) -> list[Path]:
        return [self._folder / f"{adapter}{suffix}" for suffix in SUFFIXES]

    def _check_place(self, pairs: Pairs) -> None:
        for (layer, name), (a, _) in pairs.items():
            rank, most = a.shape[-2], self.ranks[a.ndim == 3]
            if rank > most:
                raise ValueError(f"layer {layer}, {name} has rank {rank}, over {most}: see --adapter-rank")

    def _free_number(self) -> int:
        """Return a number that no request uses, and forget the adapter that has it."""
        with self._lock:
            if len(self._resident) < self._count:
                return len(self._resident) + 1
            for adapter, resident in self._resident.items():
                if not resident.users:
                    del self._resident[adapter]
                    return resident.loaded.number
        raise RequestInvalid(f"{self._count} other adapters are in use, as many as fit: see --resident-adapters")

    def _write(self, number: int, pairs: Pairs) -> None:
        for layer, block in enumerate(self.blocks):
            for name, adapter in block.linears.items():
                self._write_one(number, pairs.get((layer, name)), adapter.a_KI, adapter.b_KO)
            if (experts := block.experts) is not None:
                self._write_one(number, pairs.get((layer, "up")), experts.up_a_EKC, experts.up_b_EKN)
                self._write_one(number, pairs.get((layer, "down")), experts.down_a_EKF, experts.down_b_EKC)

    def _write_one(self, number: int, pair: tuple[Tensor, Tensor] | None, a: Tensor, b: Tensor) -> None:
        rank = self.ranks[a.ndim == 3]
        columns = slice(number * rank, (number + 1) * rank)
        a[..., columns, :] = 0
        b[..., columns, :] = 0
        if pair is not None:
            own = slice(number * rank, number * rank + pair[0].shape[-2])
            a[..., own, :] = pair[0].to(a)
            b[..., own, :] = pair[1].to(b).transpose(-1, -2)

    def _empty_block(self, layer: int, like: Tensor) -> BlockAdapters:
        moe = self._text.moe
        mixed = moe is not None and layer >= moe.start_layer
        linears = {name: Adapter(*self._empty(layer, name, like)) for name in (_PLAIN[:2] if mixed else _PLAIN)}
        if not mixed:
            return BlockAdapters(linears)
        up, down = self._empty(layer, "up", like), self._empty(layer, "down", like)
        return BlockAdapters(linears, ExpertAdapter(*up, *down, rank=self.ranks[1]))

    def _empty(self, layer: int, name: str, like: Tensor) -> tuple[Tensor, Tensor]:
        *experts, out, width = shape_at((layer, name), self._text)
        columns = self.ranks[bool(experts)] * (self._count + 1)
        return tuple(  # type: ignore[return-value]
            torch.zeros(*experts, columns, size, dtype=like.dtype, device=like.device) for size in (width, out)
        )
