"""The rows of decodes on the host. Most steps decode the same sequences as the last one, and write only new values.

B rows, A axes of a position.
"""

from collections.abc import Sequence as Several

import numpy as np
import numpy.typing as npt

from stoop_worker.engine.device.heads import UNIFORMS, draw, fixed_sampling_of, has_penalties, suppressed_of
from stoop_worker.engine.device.static_buffers import HostArrays
from stoop_worker.engine.inputs import TOKEN, TokenInput, ValuesInput
from stoop_worker.engine.positions import Positions
from stoop_worker.engine.scheduler import Chunk
from stoop_worker.engine.sequence import Sequence
from stoop_worker.engine.tensors import PENDING

__all__ = ["DecodeRows", "LaidRows"]

_Longs = npt.NDArray[np.int64]


class DecodeRows:
    """The facts about sequences that hold as long as the same ones decode together; it keeps no sequence alive."""

    def __init__(self, sequences: Several[Sequence] = ()) -> None:
        self.stays = [sequence.stay for sequence in sequences]
        self._greedy = [sequence.skill.greedy for sequence in sequences]
        self.seats = [sequence.seat for sequence in sequences]
        self.sampling = fixed_sampling_of(sequences)
        self.has_top_k = bool(self.sampling.top_ks.any())
        self._penalised = [row for row, sequence in enumerate(sequences) if has_penalties(sequence)]
        positions = [sequence.positions for sequence in sequences]
        self._are_plain = all(type(each) is Positions for each in positions)  # a family may have a class of its own
        self._deltas_B = np.array([each.delta for each in positions], dtype=np.int64)
        self._prompts_B = np.array([0 if each.prompt is None else len(each.prompt) for each in positions])

    def are_of(self, sequences: Several[Sequence]) -> bool:
        """Return whether these are the rows of sequences that have kept their seats, and their way to choose tokens."""
        return self.stays == [sequence.stay for sequence in sequences] and self._greedy == [
            sequence.skill.greedy for sequence in sequences
        ]

    def penalised(self, sequences: Several[Sequence]) -> list[Sequence]:
        """Return those with penalties."""
        return [sequences[row] for row in self._penalised]

    def positions_at(self, sequences: Several[Sequence], indices_B: _Longs) -> _Longs:
        """Return the positions of these indices, (B,) or (B, A)."""
        if self._are_plain and (indices_B >= self._prompts_B).all():
            return indices_B + self._deltas_B
        each = zip(sequences, indices_B.tolist(), strict=True)
        return np.array([sequence.positions.at(index, index + 1)[0] for sequence, index in each])


class LaidRows:
    """A set of host arrays, as laid out last; a padding row has the spare seat, slot -1 and context 0."""

    def __init__(self, host: HostArrays, *, page_size: int, spare_seat: int) -> None:
        self._host = host
        self._page_size = page_size
        self._spare_seat = spare_seat
        self._stays: list[int] | None = None  # of the rows that were settled last, the same list
        self._stays_B = np.full(len(host["ids"]), -1)
        self._pages_B = np.zeros(len(host["ids"]), dtype=np.int64)  # pages in each row of the table

    def lay(self, rows: DecodeRows, chunks: Several[Chunk]) -> None:
        """Write decodes, one chunk a row; the rest is padding."""
        if rows.stays is not self._stays:
            self._settle(rows)
        host, count = self._host, len(chunks)
        if not count:
            return
        sequences, indices_B = [chunk.sequence for chunk in chunks], np.array([chunk.start for chunk in chunks])
        positions = rows.positions_at(sequences, indices_B)
        host["positions"][:count] = positions if positions.ndim == host["positions"].ndim else positions[:, None]
        host["contexts"][:count] = indices_B + 1
        host["slots"][:count] = self._slots(sequences, indices_B)
        host["sampling"][UNIFORMS, :count] = draw(sequences, rows.sampling.sampled)
        host["suppressed"][:count] = suppressed_of(sequences)
        if host["rules"].shape[1]:
            host["rules"][:count] = [sequence.rule for sequence in sequences]
        self._feed(sequences)

    def _settle(self, rows: DecodeRows) -> None:
        """Write the values that stay while the same sequences decode."""
        host, count = self._host, len(rows.stays)
        for name, padding in (("ids", 0), ("kinds", TOKEN), ("positions", 0), ("slots", -1), ("contexts", 0)):
            host[name][count:] = padding
        host["seats"][:count], host["seats"][count:] = rows.seats, self._spare_seat
        host["sampling"][:, :count], host["sampling"][:, count:] = rows.sampling.numbers, 0
        host["top_ks"][:count] = rows.sampling.top_ks
        stays_B = np.full(len(self._stays_B), -1)
        stays_B[:count] = rows.stays
        self._pages_B[stays_B != self._stays_B] = 0
        self._stays_B, self._stays = stays_B, rows.stays

    def _slots(self, sequences: Several[Sequence], indices_B: _Longs) -> _Longs:
        """Return the slots of indices, after writing the pages that the table lacks."""
        table, count = self._host["table"], len(sequences)
        pages_B, offsets_B = np.divmod(indices_B, self._page_size)
        for row in np.flatnonzero(self._pages_B[:count] <= pages_B).tolist():
            known, needed = int(self._pages_B[row]), int(pages_B[row]) + 1
            table[row, known:needed] = sequences[row].pages[known:needed]
            self._pages_B[row] = needed
        slots_B: _Longs = table[np.arange(count), pages_B].astype(np.int64) * self._page_size + offsets_B
        return slots_B

    def _feed(self, sequences: Several[Sequence]) -> None:
        host, count = self._host, len(sequences)
        pending = [sequence.pending_input for sequence in sequences]
        if None not in pending:
            host["ids"][:count] = PENDING
            host["kinds"][:count] = [each.kind for each in pending if each is not None]
            return
        fed = [self._fed(sequence, row) for row, sequence in enumerate(sequences)]
        host["ids"][:count], host["kinds"][:count] = zip(*fed, strict=True)

    def _fed(self, sequence: Sequence, row: int) -> tuple[int, int]:
        """Write the values of a row's input; return its id and kind."""
        if sequence.pending_input is not None:
            return PENDING, sequence.pending_input.kind
        match sequence.inputs[-1]:
            case TokenInput(token):
                return token, TOKEN
            case ValuesInput(kind, values):
                self._host["values"][row, : len(values)] = values
                return 0, kind
            case media:
                raise AssertionError(f"{media} is prefilled, never decoded")
