"""The lines of a shard: one text's vector each, in the form of a results file."""

from collections.abc import Iterator
from pathlib import Path

from stoop.bulk.output.line import Line, unpack_line
from stoop.errors import ConfigError

__all__ = ["read_lines"]


def read_lines(shard: Path) -> Iterator[Line]:
    """Read the lines of a full shard; raises `ConfigError` for a damaged one."""
    with shard.open("rb") as file:
        for number, packed in enumerate(file, start=1):
            line = unpack_line(packed)
            if line is None or line.output is None:
                raise ConfigError(f"{shard} is damaged at line {number}: delete the file to embed its texts again")
            yield line
