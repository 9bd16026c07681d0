"""Counts the blocks of 8 x 8 samples that a JPEG's scans visit, which is the cost of decoding at any file size."""

from dataclasses import dataclass
from math import ceil

__all__ = ["Frame"]

_HUFFMAN = frozenset({0xC0, 0xC1, 0xC2})
_SEQUENTIAL = frozenset({0xC0, 0xC1})
_COSTLY = 10  # an arithmetic-coded visit, or a lossless one of 64 samples, takes about this many times as long


@dataclass(frozen=True, slots=True)
class Frame:
    """A JPEG's size in pixels, and for each of its components the id and the cost of one scan over it."""

    progressive: bool
    width: int
    height: int
    costs: tuple[tuple[int, int], ...]

    @classmethod
    def read(cls, segment: bytes) -> "Frame | None":
        """Read a SOF segment from its marker on; None if it is damaged, because decoders refuse it."""
        if len(segment) < 10 or len(segment) < 10 + 3 * segment[9]:
            return None
        height, width = int.from_bytes(segment[5:7], "big"), int.from_bytes(segment[7:9], "big")
        places = range(10, 10 + 3 * segment[9], 3)
        sampling = [(segment[at], segment[at + 1] >> 4 or 1, segment[at + 1] & 15 or 1) for at in places]
        widest, highest = (max((each[side] for each in sampling), default=1) for side in (1, 2))
        groups = ceil(width / (8 * widest)) * ceil(height / (8 * highest))
        weight = 1 if segment[1] in _HUFFMAN else _COSTLY
        costs = tuple((name, weight * groups * across * down) for name, across, down in sampling)
        return cls(segment[1] not in _SEQUENTIAL, width, height, costs)

    @property
    def cost(self) -> int:
        """The cost of one scan over all components."""
        return sum(cost for _, cost in self.costs)

    def ends_with(self, scan: bytes) -> bool:
        """Return whether decoders stop after this first scan, given its SOS segment from the marker on."""
        return not self.progressive and len(scan) > 4 and scan[4] >= len(self.costs)

    def cost_of(self, scan: bytes) -> int:
        """Return the cost of a scan, given its SOS segment from the marker on."""
        named = scan[5 : 5 + 2 * scan[4] : 2] if len(scan) > 4 else b""
        return sum(max((cost for name, cost in self.costs if name == each), default=self.cost) for each in named)
