"""Prefills of a plan, and decodes that join them, laid out one after another, as numbers on the host.

T positions, P pages, N given rows.
"""

from collections.abc import Sequence as Several
from dataclasses import dataclass, field
from itertools import accumulate, islice

import numpy as np
import numpy.typing as npt

from stoop_worker.engine.inputs import MediaInput, TokenInput, ValuesInput
from stoop_worker.engine.request import Media
from stoop_worker.engine.scheduler import Chunk
from stoop_worker.engine.sequence import Sequence
from stoop_worker.engine.tensors import PENDING

__all__ = ["Varlen", "lay_out", "media_of", "write_pages"]

_Longs = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Varlen:
    """Chunk b has the rows from `starts[b]` to `starts[b + 1]`; `ids_T` is 0 for inputs other than tokens.

    The id `PENDING` stands for an input that is still on the device, in the row's seat in `seats_T`.
    `media_rows` take the embeddings of media, in the order of `media_of`; `value_rows` take those of `values`.
    `readers` are the sequences whose heads are read; `lasts` is the row that each reads from.
    """

    chunks: tuple[Chunk, ...]
    starts: tuple[int, ...]
    ids_T: _Longs
    seats_T: _Longs
    positions_T: _Longs
    slots_T: _Longs
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
    """The inputs of the rows of chunks."""

    ids_T: _Longs
    seats_T: _Longs
    media: list[_Longs] = field(default_factory=lambda: [np.zeros(0, dtype=np.int64)])
    value_rows: list[int] = field(default_factory=list)
    values: list[ValuesInput] = field(default_factory=list)

    def feed(self, chunk: Chunk, start: int) -> None:
        """Fill the rows of a chunk, from row `start` on."""
        row, after = start, start + chunk.end - chunk.start
        for fed in islice(chunk.sequence.inputs, chunk.sequence.input_at(chunk.start), None):
            if row == after:
                return
            match fed:
                case TokenInput(token):
                    self.ids_T[row] = token
                    row += 1
                case MediaInput(width=width):
                    self.media.append(np.arange(row, row + width))
                    row += width
                case ValuesInput():
                    self.value_rows.append(row)
                    self.values.append(fed)
                    row += 1
        if row < after:
            assert chunk.sequence.pending_input is not None, "a row has no input"
            self.ids_T[row], self.seats_T[row] = PENDING, chunk.sequence.seat


def media_of(chunks: Several[Chunk]) -> list[Media]:
    """Return the media of chunks, in the order of their rows."""
    return [span.media for chunk in chunks for span in chunk.media]


def lay_out(chunks: Several[Chunk], *, page_size: int) -> Varlen:
    """Lay chunks out one after another; a pending input must be a token."""
    starts = (0, *accumulate(chunk.end - chunk.start for chunk in chunks))
    located = list(zip(chunks, starts, strict=False))
    rows = _Rows(*np.zeros((2, starts[-1]), dtype=np.int64))
    for chunk, start in located:
        rows.feed(chunk, start)
    return Varlen(
        chunks=tuple(chunks),
        starts=starts,
        ids_T=rows.ids_T,
        seats_T=rows.seats_T,
        positions_T=np.concatenate([chunk.sequence.positions.at(chunk.start, chunk.end) for chunk in chunks]),
        slots_T=np.concatenate([_slots(chunk, page_size) for chunk in chunks]),
        media_rows=np.concatenate(rows.media),
        value_rows=tuple(rows.value_rows),
        values=tuple(rows.values),
        readers=tuple(chunk.sequence for chunk in chunks if chunk.is_last),
        lasts=tuple(start + chunk.end - chunk.start - 1 for chunk, start in located if chunk.is_last),
    )


def write_pages(chunks: Several[Chunk], page_size: int, table_BP: npt.NDArray[np.int32]) -> None:
    """Write each chunk's pages, including those it only attends to, to the beginning of its row."""
    for row, chunk in enumerate(chunks):
        used = -(-chunk.end // page_size)
        table_BP[row, :used] = chunk.sequence.pages[:used]


def _slots(chunk: Chunk, page_size: int) -> _Longs:
    indices = np.arange(chunk.start, chunk.end)
    pages = np.asarray(chunk.sequence.pages, dtype=np.int64)
    return pages[indices // page_size] * page_size + indices % page_size
