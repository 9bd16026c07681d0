"""The highest rates measured on a device, and the least time that a kernel could take at them."""

from dataclasses import dataclass
from typing import Final

__all__ = ["H200", "Ceiling", "ceiling_of"]


@dataclass(frozen=True, slots=True)
class Ceiling:
    """Rates a second: the bytes of a copy, and the operations of large products in bfloat16 and in float8."""

    bytes: float
    bf16: float
    fp8: float

    def least_us(self, *, bytes: float, operations: float = 0.0, fp8: bool = False) -> float:
        """Return the microseconds for memory or for products, whichever takes longer."""
        return 1e6 * max(bytes / self.bytes, operations / (self.fp8 if fp8 else self.bf16))


H200: Final = Ceiling(bytes=4.28e12, bf16=643e12, fp8=1050e12)
"""The rates in PERFORMANCE.md: a copy's, and those of the encoder's products under load."""


def ceiling_of(device_name: str) -> Ceiling | None:
    """Return the ceiling of a device by its name, such as "NVIDIA H200"; None if it was not measured."""
    return H200 if "H200" in device_name else None
