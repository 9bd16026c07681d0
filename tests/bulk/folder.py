"""The output folder of a run, as its reader sees it."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from stoop.bulk.output.line import Line, failed
from stoop.bulk.output.output_folder import Identity
from stoop.bulk.row import Row
from stoop_schemas.failure import Failure, FailureCode
from stoop_schemas.skill import Output

IDENTITY = Identity({"source": "s3://photos/"}, {"skill": "query"})


def ramdisk() -> "TemporaryDirectory[str]":
    """A folder in memory if the machine has one: syncing there costs nothing."""
    return TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None)


def lines(folder: Path, pattern: str = "*.jsonl") -> list[dict[str, Any]]:
    """Read every line; each must be whole."""
    found = []
    for path in sorted(folder.glob(pattern)):
        packed = path.read_bytes()
        assert packed == b"" or packed.endswith(b"\n"), f"{path} is torn"
        found += [json.loads(line) for line in packed.splitlines()]
    return found


def rows(folder: Path, pattern: str = "*.jsonl") -> list[str]:
    """Return the names of all rows that have ended."""
    return [line["row"] for line in lines(folder, pattern)]


def good(name: str) -> Line:
    """A line of a row with an answer."""
    return Line(row=name, id=name, skill="query", output=Output(answer=f"a cat in {name}"))


def bad(name: str) -> Line:
    """A line of a row that failed."""
    return failed(Row(name, image=f"s3://photos/{name}.jpg"), Failure.of(FailureCode.IMAGE_NOT_FOUND, "nothing there"))
