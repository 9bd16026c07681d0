"""Rows grouped by image on disk, so that memory stays bounded for any number and order of rows.

Results about one image may be far apart in the files; annotation formats need them together.
"""

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from stoop.export.naming import digest
from stoop.export.orientation import STORED
from stoop.export.rows import Row, unpack_row

__all__ = ["Gathered", "ImageEntry"]

_CACHE_KIB: Final = 8192
_PAGE: Final = 500
_TABLES: Final = f"""
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
PRAGMA cache_size = -{_CACHE_KIB};
CREATE TABLE image (
    number INTEGER PRIMARY KEY, digest TEXT UNIQUE, address TEXT, found TEXT, name TEXT, distinct_part TEXT UNIQUE,
    width INTEGER, height INTEGER, orientation INTEGER DEFAULT {STORED}, used INTEGER DEFAULT 1
);
CREATE INDEX image_found ON image (found);
CREATE TABLE line (image INTEGER, number INTEGER, packed BLOB, PRIMARY KEY (image, number)) WITHOUT ROWID;
BEGIN;
"""
_COLUMNS: Final = "number, address, name, width, height, orientation"


@dataclass(frozen=True, slots=True)
class ImageEntry:
    """One image of the export: its number (from 1), address, name in the export, and size in pixels if known.

    The size is that of the image after a reader has applied the EXIF `orientation`.
    """

    number: int
    address: str
    name: str
    width: int | None = None
    height: int | None = None
    orientation: int = STORED

    @property
    def size(self) -> tuple[int, int] | None:
        """The (width, height) in pixels, or None."""
        return None if self.width is None or self.height is None else (self.width, self.height)


class Gathered:
    """Images and their rows in a database of its own; one thread uses it."""

    def __init__(self, path: Path) -> None:
        self._database = sqlite3.connect(path, isolation_level=None)
        self._database.executescript(_TABLES)
        self._rows = 0

    def find(self, address: str) -> int | None:
        """Return the number of the image at the address."""
        return self._first("SELECT number FROM image WHERE digest = ?", _short(address))

    def is_found(self, name: str) -> bool:
        """Return whether an image was found under the name."""
        return self._first("SELECT number FROM image WHERE found = ?", name) is not None

    def is_taken(self, distinct_part: str) -> bool:
        """Return whether an image already uses this distinct part of a name."""
        return self._first("SELECT number FROM image WHERE distinct_part = ?", distinct_part) is not None

    def add_image(self, address: str, *, found: str, name: str, distinct_part: str) -> int:
        """Add an image and return its number; the address `""` means no address, and `find` never returns it."""
        added = self._database.execute(
            "INSERT INTO image (digest, address, found, name, distinct_part) VALUES (?, ?, ?, ?, ?)",
            (_short(address), address, found, name, distinct_part),
        )
        return int(added.lastrowid or 0)

    def add_unused(self, address: str) -> int:
        """Remember an image that cannot be used, and return its number."""
        added = self._database.execute("INSERT INTO image (digest, used) VALUES (?, 0)", (_short(address),))
        return int(added.lastrowid or 0)

    def add_row(self, image: int, row: Row) -> None:
        """Add a row to its image; the image's size comes from the first row that has it."""
        self._rows += 1
        if row.size:
            self._database.execute(
                "UPDATE image SET width = ?, height = ? WHERE number = ? AND width IS NULL", (*row.size, image)
            )
        if row.image and row.image.startswith("data:"):
            row = msgspec.structs.replace(row, image=None)
        self._database.execute("INSERT INTO line VALUES (?, ?, ?)", (image, self._rows, msgspec.json.encode(row)))

    def set_shape(self, image: int, size: tuple[int, int], orientation: int) -> None:
        """Store an image's (width, height) as readers see it, and its orientation."""
        self._database.execute(
            "UPDATE image SET width = ?, height = ?, orientation = ? WHERE number = ?", (*size, orientation, image)
        )

    def leave_out(self, image: int) -> None:
        """Exclude an image from the export."""
        self._database.execute("UPDATE image SET used = 0 WHERE number = ?", (image,))

    def count(self) -> int:
        """Return how many images are in use."""
        return self._first("SELECT count(*) FROM image WHERE used = ?", 1) or 0

    def images(self) -> Iterator[ImageEntry]:
        """Yield the images in use, in the order they came; they may change during iteration."""
        last = 0
        while page := self._page(last):
            last = page[-1].number
            yield from page

    def images_by_name(self) -> Iterator[ImageEntry]:
        """Yield the images in use by their names in alphabetical order."""
        self._database.execute("CREATE INDEX IF NOT EXISTS image_name ON image (name, number)")
        last: tuple[str, int] = ("", 0)
        while page := self._page_by_name(*last):
            last = page[-1].name, page[-1].number
            yield from page

    def rows(self, image: int) -> list[Row]:
        """Return the rows of an image, in the order they came."""
        found = self._database.execute("SELECT packed FROM line WHERE image = ? ORDER BY number", (image,))
        return [unpack_row(packed) for (packed,) in found.fetchall()]

    def close(self) -> None:
        """Close the database; its file stays."""
        self._database.close()

    def _page(self, last: int) -> list[ImageEntry]:
        found = self._database.execute(
            f"SELECT {_COLUMNS} FROM image WHERE number > ? AND used ORDER BY number LIMIT {_PAGE}", (last,)
        )
        return [ImageEntry(*values) for values in found.fetchall()]

    def _page_by_name(self, name: str, number: int) -> list[ImageEntry]:
        found = self._database.execute(
            f"SELECT {_COLUMNS} FROM image WHERE (name, number) > (?, ?) AND used ORDER BY name, number LIMIT {_PAGE}",
            (name, number),
        )
        return [ImageEntry(*values) for values in found.fetchall()]

    def _first(self, query: str, value: str | int | None) -> int | None:
        found = self._database.execute(query, (value,)).fetchone()
        return None if found is None else int(found[0])


def _short(address: str) -> str | None:
    """Return a digest in place of a `data:` address, which may be a mebibyte long."""
    if not address:
        return None
    return f"data {digest(address)} {len(address)}" if address.startswith("data:") else address
