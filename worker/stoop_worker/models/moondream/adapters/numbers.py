"""An adapter's number in a batch, and the port that hands numbers out."""

from dataclasses import dataclass
from hashlib import blake2b
from typing import Protocol

import numpy as np
import numpy.typing as npt
from torch import Tensor

from stoop_worker.engine.positions import Positions
from stoop_worker.models.moondream.lora import BlockAdapters, Corrections

__all__ = ["AdapterPositions", "Adapters", "Loaded"]


@dataclass(frozen=True, slots=True)
class Loaded:
    """One adapter's place. `key` identifies its weights, in a number that a float64 holds exactly."""

    number: int
    key: int

    def digest(self, of_image: bytes) -> bytes:
        """Return the digest of an image under this adapter."""
        return of_image if not self.number else blake2b(of_image + self.key.to_bytes(6), digest_size=16).digest()


@dataclass(frozen=True, slots=True, eq=False)
class AdapterPositions(Positions):
    """An index is its own position; on the second axis it has the adapter's number."""

    number: int = 0

    def at(self, start: int, end: int) -> npt.NDArray[np.int64]:
        """Return the positions of the indices [start, end), (end - start, 2)."""
        return np.stack((np.arange(start, end), np.full(end - start, self.number)), axis=1)


class Adapters(Protocol):
    """The adapters of a worker; false if there are none."""

    def __bool__(self) -> bool: ...

    @property
    def blocks(self) -> tuple[BlockAdapters, ...]:
        """All adapters' corrections of each text block."""

    @property
    def ranks(self) -> tuple[int, int]:
        """The ranks of plain layers and of experts."""

    def take(self, adapter: str | None) -> Loaded:
        """Return an adapter's number and key, and keep it for a request until `give_back`.

        Number 0 means no adapter. Raises `RequestInvalid` for one that cannot be used.
        """

    def give_back(self, number: int) -> None:
        """End one request's use of a number."""

    def corrections(self, numbers_T: Tensor, like: Tensor) -> Corrections:
        """Return the corrections for rows of these numbers."""
