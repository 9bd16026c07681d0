"""The parameters for reading each sequence's heads, and the copy of the values to the host."""

import os
import time
from collections.abc import Sequence as Several
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from stoop_worker.engine.device.sampler import uniforms
from stoop_worker.engine.sequence import Sequence
from stoop_worker.engine.skill import MOST_SUPPRESSED, Head, HeadValues
from stoop_worker.kernels.sampling import LEAST_TEMPERATURE

__all__ = [
    "SAMPLING_ROWS",
    "UNIFORMS",
    "Asked",
    "HostSampling",
    "PendingHeads",
    "draw",
    "fixed_sampling_of",
    "has_penalties",
    "has_top_k",
    "is_plain",
    "rules_of",
    "sampling_of",
    "suppressed_of",
]

SAMPLING_ROWS = 5
"""The numbers of a sequence's sampling, one row each in `HostSampling.numbers`."""

_POLLED_SECONDS: Final = 1e-3
"""The longest time for which a waiting thread keeps its core. After a longer wait, waking late hardly matters."""

UNIFORMS = 2
"""The row of `HostSampling.numbers` with the random numbers."""


@dataclass(frozen=True, slots=True)
class HostSampling:
    """Sampling of R sequences: which are `sampled` at all, (R,) top_ks, and the `numbers` (5, R).

    These are temperatures, top_ps, uniforms, presence penalties and frequency penalties.
    """

    numbers: npt.NDArray[np.float64]
    top_ks: npt.NDArray[np.int32]
    sampled: npt.NDArray[np.bool_]


def has_top_k(sequence: Sequence) -> bool:
    """Return whether a sequence limits its choice to the k likeliest tokens."""
    return sequence.request.sampling.top_k > 0 and _is_sampled(sequence)


def has_penalties(sequence: Sequence) -> bool:
    """Return whether a sequence's own tokens become less likely."""
    sampling = sequence.request.sampling
    return bool(sampling.presence_penalty or sampling.frequency_penalty) and not sequence.skill.greedy


def is_plain(sequence: Sequence) -> bool:
    """Return whether a sequence samples by its temperature, top_p and suppressed ids alone."""
    return not (has_top_k(sequence) or has_penalties(sequence) or sequence.skill.constraint)


def sampling_of(sequences: Several[Sequence]) -> HostSampling:
    """Return the parameters with which each sequence samples its next token."""
    found = fixed_sampling_of(sequences)
    found.numbers[UNIFORMS] = draw(sequences, found.sampled)
    return found


def fixed_sampling_of(sequences: Several[Sequence]) -> HostSampling:
    """Return the parameters that are the same for every token of a sequence; the uniforms are 0."""
    numbers = np.zeros((SAMPLING_ROWS, len(sequences)))
    sampled = np.array([_is_sampled(sequence) for sequence in sequences], dtype=np.bool_)
    top_ks = np.zeros(len(sequences), dtype=np.int32)
    for row, sequence in enumerate(sequences):
        sampling = sequence.request.sampling
        if sampled[row]:
            numbers[:UNIFORMS, row], top_ks[row] = (sampling.temperature, sampling.top_p), sampling.top_k
        if has_penalties(sequence):
            numbers[UNIFORMS + 1 :, row] = sampling.presence_penalty, sampling.frequency_penalty
    return HostSampling(numbers, top_ks, sampled)


def draw(sequences: Several[Sequence], sampled_R: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
    """Return the random numbers with which sequences sample their next tokens; 0 for those that sample nothing."""
    if not sampled_R.any():
        return np.zeros(len(sequences))
    seeds, counts = [sequence.seed for sequence in sequences], [sequence.sampled_len for sequence in sequences]
    return np.where(sampled_R, uniforms(seeds, counts), 0)


def suppressed_of(sequences: Several[Sequence]) -> npt.NDArray[np.int32]:
    """Return the ids that must not be sampled, (R, 2); -1 is none."""
    suppressed = [sequence.suppressed for sequence in sequences]
    if not any(suppressed):
        return np.full((len(sequences), MOST_SUPPRESSED), -1, dtype=np.int32)
    return np.array([(*ids, -1, -1)[:MOST_SUPPRESSED] for ids in suppressed], dtype=np.int32)


def rules_of(sequences: Several[Sequence], width: int) -> npt.NDArray[np.int64]:
    """Return the rule of each sequence's skill, (R, `width`)."""
    if not width:
        return np.zeros((len(sequences), 0), dtype=np.int64)
    return np.array([sequence.rule for sequence in sequences], dtype=np.int64).reshape(len(sequences), width)


Asked = tuple[Sequence, int]
"""A sequence in a step, and its rollbacks when the step started."""


class PendingHeads:
    """The head values of one step on their way to the host; only `collect` waits for them."""

    def __init__(self, asked: Several[Asked], parts: Several[Tensor]) -> None:
        """Send `parts`, each (rows, 1 or 1 + V) on the device, to the host; together they have one row per sequence."""
        self._asked = asked
        self._parts = [_to_host(part) for part in parts]
        self._arrival = _sleeping_event() if parts and parts[0].is_cuda else None
        if self._arrival is not None:
            self._arrival.record()

    @property
    def sequences(self) -> list[Sequence]:
        """The sequences of these values, except those rolled back since."""
        return [sequence for sequence, rollbacks in self._asked if sequence.rollbacks == rollbacks]

    def collect(self, *, wakeful: bool = False, awaited: bool = False) -> list[tuple[Sequence, HeadValues]]:
        """Wait for the device; return the values of each sequence, except those rolled back since.

        A thread that sleeps wakes up to 0.3 ms late. A `wakeful` one keeps its core, but not the interpreter. Values
        are `awaited` if the device can do nothing before the thread has used them; then the thread keeps its core for
        up to a millisecond before it sleeps.
        """
        if self._arrival is not None:
            if awaited:
                _poll(self._arrival)
            while wakeful and not self._arrival.query():  # type: ignore[no-untyped-call]
                time.sleep(0)
            self._arrival.synchronize()
        rows = [row for part in self._parts for row in _rows(part)]
        return [
            (sequence, row if isinstance(row, HeadValues) else _values(sequence.skill.heads, row))
            for (sequence, rollbacks), row in zip(self._asked, rows, strict=True)
            if sequence.rollbacks == rollbacks
        ]


def _is_sampled(sequence: Sequence) -> bool:
    return not sequence.skill.greedy and sequence.request.sampling.temperature >= LEAST_TEMPERATURE


def _sleeping_event() -> torch.cuda.Event:
    """Return an event whose waiter sleeps: the device already has the next step, and the cores have other work."""
    return torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]


def _poll(event: torch.cuda.Event) -> None:
    """Return once an event has happened, or after a millisecond."""
    end = time.perf_counter() + _POLLED_SECONDS
    while not event.query() and time.perf_counter() < end:  # type: ignore[no-untyped-call]
        os.sched_yield()  # `time.sleep(0)` takes 70 us


def _to_host(part: Tensor) -> Tensor:
    if not part.is_cuda:
        return part
    return torch.empty(part.shape, dtype=part.dtype, pin_memory=True).copy_(part, non_blocking=True)


def _rows(part: Tensor) -> list[HeadValues] | list[list[float]]:
    """Return the values of each row, which are only tokens unless a row asks for more."""
    if part.shape[1] > 1:
        rows: list[list[float]] = part.tolist()
        return rows
    new = tuple.__new__  # twice as fast as the class itself
    return [new(HeadValues, (token, ())) for token in part.numpy()[:, 0].astype(np.int64, copy=False).tolist()]


def _values(heads: Head, row: Several[float]) -> HeadValues:
    only_token = heads is Head.TOKEN  # the usual case, and flags are slow to test
    if only_token:
        return HeadValues(int(row[0]))
    return HeadValues(
        token=int(row[0]) if Head.TOKEN in heads else None,
        values=tuple(row[1:]) if Head.VALUES in heads else (),
    )
