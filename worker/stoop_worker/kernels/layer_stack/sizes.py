"""The sizes that the kernel's source is written for, and the shared memory of a program. Letters as in the package."""

from dataclasses import dataclass

__all__ = ["BESIDE_HEADS", "THREADS", "Sizes"]

THREADS = 384
"""Threads of a program: eight warps that multiply, and four that copy."""

BESIDE_HEADS = 1280
"""Bytes of a program for all that its warps share beside heads, sums and the row, such as barriers; at most."""

_WARPS, _TILE = 8, 16
_MULTIPLYING = 32 * _WARPS
_LINES, _FLOAT8_GAP = 8, 64  # rows of a weight in a slot, and bytes between them
_MOST_CHUNK, _WHOLE_CHUNK = 2560, 512  # bytes of a row in a full slot
_HEADS = 64  # keys and values in a slot
_MOST_SPLITS = 16
_MOST_ROWS = 256  # of a product in a program
_MOST_GROUP = 8  # queries of a key head
_MOST_WIDTH = 31 * 4 * _MULTIPLYING  # of a row: a thread has at most 31 groups of four values
_LEAST_SLOTS = 8  # that the ring needs: see the assertions in ring.cu
_SLOTS_FOR_FOUR = 11  # a ring of at least 11 slots allows four copies under way
_A_PROGRAM = 227 * 1024


@dataclass(frozen=True, slots=True)
class Sizes:
    """`frequencies` are half of a head's rotated channels, `programs` the device's multiprocessors.

    In `parallel` layers attention and the MLP read the same norm.
    """

    dim: int
    inner: int
    heads: int
    key_heads: int
    head_dim: int
    frequencies: int
    normed: bool
    float8: bool
    page: int
    programs: int
    layers: int
    parallel: bool = False

    @property
    def fields(self) -> int:
        """Numbers in a layer's record."""
        return 6 if self.parallel else 12

    @property
    def splits(self) -> int:
        """Ranges of positions of a key head."""
        return min(_MOST_SPLITS, self.programs // self.key_heads)

    @property
    def joined(self) -> int:
        """Channels of all query heads."""
        return self.heads * self.head_dim

    @property
    def made(self) -> int:
        """Rows of the first product."""
        return (self.heads + 2 * self.key_heads) * self.head_dim

    @property
    def chunk(self) -> int:
        """Bytes of each row in a full slot, so that slots hold even shares of the rows of most weights."""
        row = self.dim if self.float8 else 2 * self.dim
        shares = -(-row // _MOST_CHUNK)
        return -(-row // (shares * _WHOLE_CHUNK)) * _WHOLE_CHUNK

    @property
    def slots(self) -> int:
        """The slots that the ring has room for."""
        return (_A_PROGRAM - self._beside_ring) // self._slot_bytes

    @property
    def under_way(self) -> int:
        """Slots that are copied at once."""
        if self.float8:
            return 2
        return 4 if self.parallel and self.slots >= _SLOTS_FOR_FOUR else 3

    @property
    def team(self) -> int:
        """Warps that multiply the same slot."""
        return 2 if self.parallel else 4

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of a program."""
        return self.slots * self._slot_bytes + self._beside_ring

    def fits(self) -> bool:
        """Return whether the kernel computes layers of these sizes."""
        group, rest = divmod(self.heads, self.key_heads)
        widths = self.dim, self.joined, self.inner
        return (
            (not self.parallel or self.dim % (4 * _MULTIPLYING) == 0)
            and self.head_dim in (64, 128)
            and not rest
            and group <= _MOST_GROUP
            and self.key_heads <= self.programs
            and all(width % (512 if self.float8 else 64) == 0 for width in widths)
            and max(widths) <= _MOST_WIDTH
            and all(rows <= _MOST_ROWS * self.programs for rows in (self.made, self.inner, self.dim))
            and self.slots >= _LEAST_SLOTS
        )

    @property
    def _slot_bytes(self) -> int:
        gap = _FLOAT8_GAP if self.float8 else 0
        rows, heads = _LINES * (self.chunk + gap), _HEADS * (2 * self.head_dim + 16)
        return max(rows, heads) + (self.chunk // 8 if self.float8 else 0)

    @property
    def _beside_ring(self) -> int:
        """Return the bytes of the row, of the sums and heads (at least), and of the layers' records."""
        group = self.heads // self.key_heads
        values = max(2 * self.dim + 32, self.joined, self.inner)
        row = -(-max(2 * values, 4 * _WARPS * group * self.head_dim) // 128) * 128
        made, inner, dim = (self._most_rows(rows) for rows in (self.made, self.inner, self.dim))
        rows = 2 * max(made, inner, dim) if self.parallel else max(2 * inner, made, dim)
        sums = 4 * _WARPS * rows + 20 * (self.head_dim + 8) + BESIDE_HEADS
        return row + sums + 8 * self.fields * self.layers

    def _most_rows(self, rows: int) -> int:
        """Return the most rows of a product in a program, in whole tiles."""
        most = -(-rows // self.programs)
        return -(-most // _TILE) * _TILE
