"""What the heads say: kept on the device for the next step to be fed from, and sent to the host for the skills.

R rows that read, C model dim, S seats.
"""

from collections.abc import Iterator
from collections.abc import Sequence as Several
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from worker.engine.sampler import MOST_SUPPRESSED, Draws, draw, is_sampled, uniform
from worker.engine.sequence import Sequence
from worker.engine.skills import Head, Reading
from worker.model import region, text
from worker.model.weights import Weights

__all__ = ["Readings", "Reads", "Seats", "draws_of", "read_heads"]

_VALUES = 4  # token, coordinate, width, height


@dataclass(frozen=True, slots=True)
class Seats:
    """The last readings of each running sequence, by its seat: (S,) ids, (S,) coordinates and (S, 2) sizes."""

    tokens_S: Tensor
    coordinates_S: Tensor
    sizes_S2: Tensor

    @classmethod
    def of(cls, count: int, device: torch.device) -> "Seats":
        """Make so many seats."""
        return cls(
            torch.zeros(count, dtype=torch.int64, device=device),
            torch.zeros(count, dtype=torch.float32, device=device),
            torch.zeros(count, 2, dtype=torch.float32, device=device),
        )


@dataclass(frozen=True, slots=True)
class Reads:
    """How heads are read after a batch. `regions` says whether anybody reads more than a token."""

    seats_R: Tensor
    draws: Draws
    regions: bool


def draws_of(sequences: Several[Sequence]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int32]]:
    """Return how each sequence draws: (3, R) temperatures, top_ps and uniforms, and (R, 2) suppressed ids."""
    numbers = np.zeros((3, len(sequences)))
    suppressed = np.full((len(sequences), MOST_SUPPRESSED), -1, dtype=np.int32)
    for row, sequence in enumerate(sequences):
        if is_sampled(sequence):
            sampling = sequence.request.sampling
            numbers[:, row] = sampling.temperature, sampling.top_p, uniform(sequence.seed, sequence.draws)
        if sequence.suppressed:
            suppressed[row, : len(sequence.suppressed)] = sequence.suppressed
    return numbers, suppressed


def read_heads(
    hidden_RC: Tensor, seats_R: Tensor, draws: Draws, *, weights: Weights, seats: Seats, regions: bool
) -> Tensor:
    """Read all heads (without `regions` only tokens) into the rows' seats; returns them as (R, 4) float64.

    Doubles hold every id and every float32.
    """
    ids_R = draw(text.logits(hidden_RC, weights.text), draws)
    seats.tokens_S[seats_R] = ids_R
    if not regions:
        return ids_R.double()[:, None]
    coordinates_R = region.read_coordinate(region.coordinate_logits(hidden_RC, weights.region))
    sizes_R2 = region.read_size(region.size_logits(hidden_RC, weights.region))
    seats.coordinates_S[seats_R] = coordinates_R
    seats.sizes_S2[seats_R] = sizes_R2
    return torch.cat((ids_R.double()[:, None], coordinates_R.double()[:, None], sizes_R2.double()), dim=1)


class Readings:
    """The readings of one step on their way to the host; nothing waits until they are asked for."""

    def __init__(self, sequences: Several[Sequence], parts: Several[Tensor]) -> None:
        """Send `parts`, each (rows, 1 or 4) on the device, which together have a row for each sequence."""
        self._asked = [(sequence, sequence.turns) for sequence in sequences]
        self._parts = [_to_host(part) for part in parts]
        self._arrival = _sleeping_event() if parts and parts[0].is_cuda else None
        if self._arrival is not None:
            self._arrival.record()

    @property
    def sequences(self) -> list[Sequence]:
        """Whose readings these are, less those that have turned since."""
        return [sequence for sequence, turns in self._asked if sequence.turns == turns]

    def collect(self) -> Iterator[tuple[Sequence, Reading]]:
        """Wait for the device and return what each sequence asked for, less those that have turned since."""
        if self._arrival is not None:
            self._arrival.synchronize()
        rows = (row for part in self._parts for row in part.tolist())
        for (sequence, turns), row in zip(self._asked, rows, strict=True):
            if sequence.turns == turns:
                yield sequence, _reading(sequence.skill.heads, row)


def _sleeping_event() -> torch.cuda.Event:
    """Return an event whose waiter sleeps: the device has the next step already, and the host's cores other work."""
    return torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]


def _to_host(part: Tensor) -> Tensor:
    if not part.is_cuda:
        return part
    return torch.empty(part.shape, dtype=part.dtype, pin_memory=True).copy_(part, non_blocking=True)


def _reading(heads: Head, row: Several[float]) -> Reading:
    return Reading(
        token=int(row[0]) if Head.TOKEN in heads else None,
        coordinate=row[1] if Head.COORDINATE in heads else None,
        size=(row[2], row[3]) if Head.SIZE in heads else None,
    )
