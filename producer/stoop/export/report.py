"""The report of an export: counts, and a file listing the images and lines it could not use."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

__all__ = ["Report"]


@dataclass(slots=True)
class Report:
    """Counts of one export.

    `rows` read; `unfinished` of them by status, left out; `without_image` also left out if the format needs images;
    `measured` images whose size was read; `turned` of them by their EXIF orientation, with all places in them;
    `written` by kind: images, boxes, points, captions, answers, rows; `left_out` by kind: answers that the format
    cannot hold, and boxes without area; `errors`: lines and images that could not be used, each listed in
    `errors_file`.
    """

    errors_file: Path
    rows: int = 0
    measured: int = 0
    turned: int = 0
    without_image: int = 0
    unfinished: Counter[str] = field(default_factory=Counter)
    written: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    errors: int = 0
    last_error: str = ""
    _file: BinaryIO | None = None

    def error(self, subject: str, message: str) -> None:
        """Record an image (by its address) or a line (by its position) that could not be used."""
        # keep a signed query out of the report
        plain = subject.partition("?")[0] if subject.startswith("http") else subject
        shown = f"{plain[:1000]}…" if len(plain) > 1000 else plain
        if self._file is None:
            self._file = self.errors_file.open("wb")
        self._file.write(msgspec.json.encode({"what": shown, "message": message}) + b"\n")
        self.errors += 1
        self.last_error = f"{shown[:100]}: {message}"

    def close(self) -> None:
        """Close the file of errors."""
        if self._file is not None:
            self._file.close()

    @property
    def progress(self) -> str:
        """The progress as text; any thread may read it."""
        done = self.written["images"] + self.written["rows"]
        measured = f", {self.measured:,} images measured" if self.measured else ""
        return f"{self.rows:,} rows read{measured}, {done:,} written"

    def facts(self) -> dict[str, Any]:
        """Return the counts as JSON values."""
        return {
            "rows": self.rows,
            "turned": self.turned,
            "written": dict(self.written),
            "unfinished": dict(self.unfinished),
            "without_image": self.without_image,
            "left_out": dict(self.left_out),
            "errors": self.errors,
            "errors_file": str(self.errors_file) if self.errors else None,
        }
