"""Counts of the tokens that sequences with penalties have sampled. S seats, R rows, V vocabulary."""

from collections.abc import Sequence as Several

import numpy as np
import torch
from torch import Tensor

from stoop_worker.engine.device.heads import has_penalties
from stoop_worker.engine.device.upload import Upload
from stoop_worker.engine.sequence import Sequence
from stoop_worker.engine.tensors import PenaltyRows

__all__ = ["TokenCounts"]


class TokenCounts:
    """The counts of each seat, on the device: the next step samples before the host knows the last step's tokens.

    They are allocated at the start; `KVMemory` leaves room for them.
    """

    def __init__(self, seats: int, vocabulary: int, device: torch.device) -> None:
        self._counts_SV = torch.zeros(seats, vocabulary, dtype=torch.int32, device=device)
        self._counted: dict[int, tuple[int, int]] = {}  # by seat: the sequence's arrival, and its rollbacks by then

    def renew(self, sequences: Several[Sequence], *, prefilled: bool) -> bool:
        """Count again where the counts on the device are wrong; return whether any sequence has penalties.

        The counts of a seat belong to another sequence if this one is new there, and then it is `prefilled`. After a
        rollback they have a token too many. Call it before each step, outside of a captured one.
        """
        penalised = [sequence for sequence in sequences if has_penalties(sequence)]
        for sequence in penalised:
            current = sequence.arrival, sequence.rollbacks
            if prefilled or self._counted.get(sequence.seat) != current:
                assert sequence.pending_input is None, "a token was sampled that nothing would count"
                self._counted[sequence.seat] = current
                self._recount(sequence)
        return bool(penalised)

    def rows(self, seats_R: Tensor, presences_R: Tensor, frequencies_R: Tensor) -> PenaltyRows:
        """Return the penalties of the rows with these seats."""
        return PenaltyRows(self._counts_SV, seats_R, presences_R, frequencies_R)

    def _recount(self, sequence: Sequence) -> None:
        counts_V = self._counts_SV[sequence.seat]
        if not sequence.sampled:
            counts_V.zero_()
            return
        upload = Upload(counts_V.device)
        counted = np.bincount(sequence.sampled, minlength=len(counts_V))
        sent = upload.to_device(counted, torch.int32)
        upload.send()
        counts_V.copy_(sent)
