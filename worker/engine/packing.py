"""Prefills of a plan packed one behind the other, as numbers on the host. T positions packed, P pages."""

from collections.abc import Sequence as Several
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from worker.engine.inputs import CoordinateInput, SizeInput, TokenInput
from worker.engine.scheduler import Chunk
from worker.engine.sequence import Sequence

__all__ = ["Entries", "Packed", "pack", "write_pages"]

Entries = list[tuple[int, object]]
"""Packed rows whose embedding is written from values, and the values."""

_Longs = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Packed:
    """Chunk b has the rows from `starts[b]` to `starts[b + 1]`; `ids_T` is 0 where no token is fed.

    `images` are the first rows of image embeddings; `coordinates` are x or y, `sizes` (width, height). `readers` are
    the sequences that read heads, `lasts` the row that each reads from.
    """

    chunks: tuple[Chunk, ...]
    starts: tuple[int, ...]
    ids_T: _Longs
    positions_T: _Longs
    slots_T: _Longs
    coordinates: Entries
    sizes: Entries
    images: tuple[int, ...]
    readers: tuple[Sequence, ...]
    lasts: tuple[int, ...]


def pack(chunks: Several[Chunk], *, page_size: int, bos_id: int) -> Packed:
    """Lay chunks out one behind the other; what they are fed must be known."""
    starts = (0, *accumulate(chunk.end - chunk.start for chunk in chunks))
    located = list(zip(chunks, starts, strict=False))
    ids_T = np.zeros(starts[-1], dtype=np.int64)
    coordinates: Entries = []
    sizes: Entries = []
    for chunk, start in located:
        _feed(chunk, start, bos_id, (ids_T, coordinates, sizes))
    return Packed(
        chunks=tuple(chunks),
        starts=starts,
        ids_T=ids_T,
        positions_T=np.concatenate([np.arange(chunk.start, chunk.end) for chunk in chunks]),
        slots_T=np.concatenate([_slots(chunk, page_size) for chunk in chunks]),
        coordinates=coordinates,
        sizes=sizes,
        images=tuple(start + 1 for chunk, start in located if chunk.has_image),
        readers=tuple(chunk.sequence for chunk in chunks if chunk.reads),
        lasts=tuple(start + chunk.end - chunk.start - 1 for chunk, start in located if chunk.reads),
    )


def write_pages(chunks: Several[Chunk], page_size: int, table_BP: npt.NDArray[np.int32]) -> None:
    """Write the pages that each chunk has or sees to the beginning of its row."""
    for row, chunk in enumerate(chunks):
        used = -(-chunk.end // page_size)
        table_BP[row, :used] = chunk.sequence.pages[:used]


def _feed(chunk: Chunk, start: int, bos_id: int, into: tuple[_Longs, Entries, Entries]) -> None:
    ids_T, coordinates, sizes = into
    sequence = chunk.sequence
    if chunk.has_image:
        ids_T[start] = bos_id
        start += sequence.prefix_len
    first = max(0, chunk.start - sequence.prefix_len)
    for row, fed in enumerate(sequence.inputs[first : chunk.end - sequence.prefix_len], start):
        match fed:
            case TokenInput(token):
                ids_T[row] = token
            case CoordinateInput(value):
                coordinates.append((row, value))
            case SizeInput(width, height):
                sizes.append((row, (width, height)))


def _slots(chunk: Chunk, page_size: int) -> _Longs:
    positions = np.arange(chunk.start, chunk.end)
    pages = np.asarray(chunk.sequence.pages, dtype=np.int64)
    return pages[positions // page_size] * page_size + positions % page_size
