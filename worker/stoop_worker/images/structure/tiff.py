"""A TIFF's first directory, reduced to the fields that define its pixels."""

import struct
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stoop_worker.errors import ImageTooLarge, ImageUndecodable
from stoop_worker.images.structure.tiff_strips import Strips, check_strips

__all__ = ["lean_tiff"]

# Left out: resolution, texts, profiles, previews, and the directories of cameras and maps.
_PICTURE = (
    254,
    256,
    257,
    258,
    259,
    262,
    266,
    274,
    277,
    284,
    332,
    334,
    338,
    339,
    340,
    341,
)  # size, samples, turn
_PLACES = (273, 278, 279, 322, 323, 324, 325)  # of strips and tiles
_CODES = (292, 293, 317, 347, *range(512, 522))  # compressions' options and tables
_COLOURS = (320, 333, 529, 530, 531, 532)
_NEEDED = frozenset((*_PICTURE, *_PLACES, *_CODES, *_COLOURS))
_SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4, 16: 8, 17: 8, 18: 8}
_WHOLE = {1: "u1", 3: "u2", 4: "u4", 13: "u4", 16: "u8"}
_MOST_VALUES = 4 << 20  # bytes of the kept fields' values: offsets and sizes of 65,536 strips take 1 MB
_MOST_FIELDS = 0xFFFF  # a BigTIFF can claim more
_Numbers = npt.NDArray[np.unsignedinteger]


@dataclass(frozen=True, slots=True)
class _Flavour:
    """A file's number format: `order` is the byte-order sign of struct and numpy; a big TIFF's offsets have 8 bytes."""

    order: str
    big: bool

    @classmethod
    def of(cls, encoded: bytes) -> "_Flavour":
        return cls("<" if encoded.startswith(b"II") else ">", encoded[2] == 43)

    @property
    def head(self) -> int:
        """The position of the first directory's offset."""
        return 8 if self.big else 4

    @property
    def offset(self) -> str:
        return self.order + ("Q" if self.big else "L")

    @property
    def count(self) -> str:
        """The struct format of a directory's number of fields."""
        return self.order + ("Q" if self.big else "H")

    @property
    def field(self) -> str:
        """The struct format of a field: tag, type, number of values, and the values or their offset."""
        return self.order + ("HHQ8s" if self.big else "HHL4s")


@dataclass(frozen=True, slots=True)
class _Field:
    kind: int
    count: int
    inline: bytes

    @property
    def size(self) -> int:
        return self.count * _SIZES[self.kind]


def lean_tiff(encoded: bytes, most_pixels: int) -> bytes:
    """Return the file with only the needed fields in its first directory, and no other directory after it.

    No bytes move. Raises `ImageTooLarge` if the strips or tiles make more work than their pixels,
    `ImageUndecodable` if there is no directory.
    """
    flavour = _Flavour.of(encoded)
    try:
        (at,) = struct.unpack_from(flavour.offset, encoded, flavour.head)
        fields = _read(encoded, at, flavour)
    except struct.error as error:
        raise ImageUndecodable("the image is damaged: a TIFF's directory is not where the file says") from error
    if sum(field.size for field in fields.values()) > _MOST_VALUES:
        raise ImageTooLarge(f"the TIFF's fields have more than {_MOST_VALUES} bytes")
    check_strips(encoded, _strips(encoded, flavour, fields), most_pixels)
    directory = _directory(fields, flavour)
    return b"".join((encoded[:at], directory, encoded[at + len(directory) :]))


def _read(encoded: bytes, at: int, flavour: _Flavour) -> dict[int, _Field]:
    (count,) = struct.unpack_from(flavour.count, encoded, at)
    at, size = at + struct.calcsize(flavour.count), struct.calcsize(flavour.field)
    there = min(count, _MOST_FIELDS, (len(encoded) - at) // size)
    fields: dict[int, _Field] = {}
    for tag, kind, values, inline in struct.iter_unpack(flavour.field, encoded[at : at + there * size]):
        # Pillow, too, ignores a value that is larger than the file
        if tag in _NEEDED and kind in _SIZES and values * _SIZES[kind] <= len(encoded):
            fields.setdefault(tag, _Field(kind, values, inline))
    return fields


def _directory(fields: dict[int, _Field], flavour: _Flavour) -> bytes:
    packed = [
        struct.pack(flavour.field, tag, field.kind, field.count, field.inline) for tag, field in sorted(fields.items())
    ]
    return b"".join((struct.pack(flavour.count, len(fields)), *packed, struct.pack(flavour.offset, 0)))


def _strips(encoded: bytes, flavour: _Flavour, fields: dict[int, _Field]) -> Strips:
    def numbers(*tags: int) -> _Numbers:
        """Return the values of the first of these fields that exists, up to the end of the file."""
        field = next((fields[tag] for tag in tags if tag in fields), None)
        if field is None or field.kind not in _WHOLE:
            return np.empty(0, dtype=np.uint64)
        (offset,) = struct.unpack(flavour.offset, field.inline)
        raw = field.inline[: field.size] if field.size <= len(field.inline) else encoded[offset : offset + field.size]
        kind = np.dtype(flavour.order + _WHOLE[field.kind])
        values: _Numbers = np.frombuffer(raw[: len(raw) // kind.itemsize * kind.itemsize], dtype=kind)
        return values

    def number(tag: int, default: int) -> int:
        values = numbers(tag)
        return int(values[0]) if values.size else default

    return Strips(
        compression=number(259, 1),
        offsets=numbers(273, 324),
        sizes=numbers(279, 325),
        tile=(number(322, 0), number(323, 0)) if 322 in fields else None,
        samples=number(277, 1) if number(284, 1) == 2 else 1,
        width=number(256, 0),
        height=number(257, 0),
    )
