"""Transcripts: a text, JSON, SubRip or WebVTT file for each recording, named like it."""

import contextlib
import os
from collections.abc import Iterator
from itertools import chain, count
from pathlib import Path

from stoop.export.naming import flat, own_name, stem, with_digest
from stoop.export.report import Report
from stoop.export.rows import BadLine, Row
from stoop.subtitles import write_transcript

__all__ = ["write_transcripts"]


def write_transcripts(rows: Iterator[Row | BadLine], kind: str, report: Report, out: Path) -> None:
    """Write the transcript of each recording into the folder `out`, in one of `stoop.subtitles.FORMATS`.

    A file has its recording's path and name with the format's suffix; in a folder, the path within that folder. If two
    would share a file, the later one gets a digest in its name.
    """
    out.mkdir()
    for row in rows:
        if isinstance(row, BadLine):
            report.error(row.place, row.message)
            continue
        report.rows += 1
        if not row.completed:
            report.unfinished[row.ending] += 1
        elif row.output is None or row.output.transcript is None:
            report.left_out["answers"] += 1
        else:
            path = _free(out, _name(row) or f"row {report.rows}", kind)
            path.write_text(write_transcript(row.output.transcript, kind), encoding="utf-8")
            report.written["rows"] += 1


def _name(row: Row) -> str | None:
    """Return a row's address; for a recording in a folder, its path within that folder, which is the row's own name."""
    if row.address and row.id and row.address.endswith(f"/{row.id}") and "://" not in row.address:
        return row.id
    return row.address or row.custom_id or row.id


def _free(out: Path, address: str, kind: str) -> Path:
    """Return a path that no other transcript has, in a folder that is there."""
    name = own_name(address)
    first, second = stem(name), stem(with_digest(name, address))
    for tried in chain((first, second), (f"{flat(second)}-{number}" for number in count(2))):
        path = out / f"{tried}.{kind}"
        with contextlib.suppress(FileExistsError, NotADirectoryError):  # a recording may be named like a folder
            path.parent.mkdir(parents=True, exist_ok=True)
            if not os.path.lexists(path):
                return path
    raise AssertionError("numbers do not end")
