"""Prefills of a plan, and decodes that join them, laid out one after another, as numbers on the host.

B chunks, T positions, P pages, N given rows.
"""

from collections.abc import Sequence as Several
from dataclasses import dataclass, field
from itertools import accumulate, islice

import numpy as np
import numpy.typing as npt

from stoop_worker.engine.inputs import MediaInput, TokenInput, ValuesInput
from stoop_worker.engine.positions import INDEX
from stoop_worker.engine.request import Media
from stoop_worker.engine.scheduler import Chunk
from stoop_worker.engine.sequence import Sequence
from stoop_worker.engine.tensors import PENDING

__all__ = ["Varlen", "lay_out", "media_of"]

_Longs = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Varlen:
    """Chunk b has the rows from `starts[b]` to `starts[b + 1]`; `ids_T` is 0 for inputs other than tokens.

    The id `PENDING` stands for an input that is still on the device, in the row's seat in `seats_T`.
    `media_rows` take the embeddings of media, in the order of `media_of`; `value_rows` take those of `values`.
    `table_BP` has each chunk's pages, including those it only attends to, and then zeros. `readers` are the sequences
    whose heads are read; `lasts` is the row that each reads from.
    """

    chunks: tuple[Chunk, ...]
    starts: tuple[int, ...]
    ids_T: _Longs
    seats_T: _Longs
    positions_T: _Longs
    slots_T: _Longs
    table_BP: npt.NDArray[np.int32]
    media_rows: _Longs
    value_rows: tuple[int, ...]
    values: tuple[ValuesInput, ...]
    readers: tuple[Sequence, ...]
    lasts: tuple[int, ...]

    @property
    def has_pending(self) -> bool:
        """Return whether any input is still on the device."""
        return any(chunk.sequence.pending_input is not None for chunk in self.chunks)

    @property
    def rows(self) -> int:
        """The total number of rows."""
        return self.starts[-1]

    @property
    def given_rows(self) -> _Longs:
        """The rows whose embeddings are given: those of media, then those of values."""
        return np.concatenate((self.media_rows, np.array(self.value_rows, dtype=np.int64)))


@dataclass(slots=True)
class _Rows:
    """The inputs of the first `count` rows of chunks."""

    count: int = 0
    ids: list[tuple[int, list[int]]] = field(default_factory=list)  # of consecutive rows, with the first row
    seats: dict[int, int] = field(default_factory=dict)  # by row
    media: list[_Longs] = field(default_factory=lambda: [np.zeros(0, dtype=np.int64)])
    value_rows: list[int] = field(default_factory=list)
    values: list[ValuesInput] = field(default_factory=list)

    def feed(self, chunk: Chunk) -> None:
        """Add the rows of a chunk."""
        row, after = self.count, self.count + chunk.end - chunk.start
        self.count, ids = after, self._ids_from(row)
        for fed in islice(chunk.sequence.inputs, chunk.sequence.input_at(chunk.start), None):
            if row == after:
                return
            match fed:
                case TokenInput(token):
                    ids.append(token)
                    row += 1
                case MediaInput(width=width):
                    self.media.append(np.arange(row, row + width))
                    row += width
                    ids = self._ids_from(row)
                case ValuesInput():
                    self.value_rows.append(row)
                    self.values.append(fed)
                    ids.append(0)
                    row += 1
        if row < after:
            assert chunk.sequence.pending_input is not None, "a row has no input"
            self.seats[row] = chunk.sequence.seat
            ids.append(PENDING)

    def _ids_from(self, row: int) -> list[int]:
        ids: list[int] = []
        self.ids.append((row, ids))
        return ids


def media_of(chunks: Several[Chunk]) -> list[Media]:
    """Return the media of chunks, in the order of their rows."""
    return [span.media for chunk in chunks for span in chunk.media]


def lay_out(chunks: Several[Chunk], *, page_size: int) -> Varlen:
    """Lay chunks out one after another; a pending input must be a token."""
    counts = [chunk.end - chunk.start for chunk in chunks]
    starts = (0, *accumulate(counts))
    rows = _Rows()
    for chunk in chunks:
        rows.feed(chunk)
    chunks_T = np.arange(len(chunks)).repeat(counts)
    indices_T = np.concatenate([np.arange(chunk.start, chunk.end) for chunk in chunks])
    table_BP = _table(chunks, page_size)
    return Varlen(
        chunks=tuple(chunks),
        starts=starts,
        ids_T=_ids(rows),
        seats_T=_seats(rows),
        positions_T=_positions(chunks, indices_T),
        slots_T=table_BP[chunks_T, indices_T // page_size].astype(np.int64) * page_size + indices_T % page_size,
        table_BP=table_BP,
        media_rows=np.concatenate(rows.media),
        value_rows=tuple(rows.value_rows),
        values=tuple(rows.values),
        readers=tuple(chunk.sequence for chunk in chunks if chunk.is_last),
        lasts=tuple(after - 1 for chunk, after in zip(chunks, starts[1:], strict=True) if chunk.is_last),
    )


def _ids(rows: _Rows) -> _Longs:
    ids_T = np.zeros(rows.count, dtype=np.int64)  # the many rows of media have no ids
    for first, ids in rows.ids:
        ids_T[first : first + len(ids)] = ids
    return ids_T


def _seats(rows: _Rows) -> _Longs:
    seats_T = np.zeros(rows.count, dtype=np.int64)
    for row, seat in rows.seats.items():
        seats_T[row] = seat
    return seats_T


def _table(chunks: Several[Chunk], page_size: int) -> npt.NDArray[np.int32]:
    counts = [-(-chunk.end // page_size) for chunk in chunks]
    table_BP = np.zeros((len(chunks), max(counts)), dtype=np.int32)
    for row, (chunk, used) in enumerate(zip(chunks, counts, strict=True)):
        table_BP[row, :used] = chunk.sequence.pages[:used]
    return table_BP


def _positions(chunks: Several[Chunk], indices_T: _Longs) -> _Longs:
    if all(chunk.sequence.positions is INDEX for chunk in chunks):
        return indices_T
    return np.concatenate([chunk.sequence.positions.at(chunk.start, chunk.end) for chunk in chunks])
