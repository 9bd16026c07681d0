"""Opens the source that the command line names."""

from pathlib import Path
from typing import TYPE_CHECKING

from stoop.bulk.sources.folder import Folder
from stoop.bulk.sources.jsonl import JsonLines
from stoop.bulk.sources.prefix import read_prefix
from stoop.bulk.sources.source import SUFFIXES, Source
from stoop.bulk.sources.table import Csv, Parquet
from stoop.errors import ConfigError

if TYPE_CHECKING:
    from stoop.config import ProducerConfig

__all__ = ["open_source"]


def open_source(
    named: str,
    config: "ProducerConfig",
    *,
    column: str | None = None,
    match: str | None = None,
    suffixes: tuple[str, ...] = SUFFIXES,
) -> Source:
    """Return the source: `s3://bucket/prefix`, a folder, or a .jsonl, .csv, .tsv or .parquet file.

    `column` names the image column of a table, "image" by default. `match` is a pattern for names under a prefix or
    folder; without one, names with one of the `suffixes` are taken. Raises `ConfigError` for anything else, and for an
    option that the source does not take.
    """
    path = Path(named).expanduser()
    under = named.startswith("s3://") or path.is_dir()
    if match and not under:
        raise ConfigError("--match goes with a folder or an s3:// prefix")
    source = (
        read_prefix(named, config, match, suffixes)
        if named.startswith("s3://")
        else _local(path.absolute(), column or "image", match, suffixes)
    )
    if column and not isinstance(source, Csv | Parquet):
        raise ConfigError("--column goes with a CSV or Parquet file")
    return source


def _local(path: Path, column: str, match: str | None, suffixes: tuple[str, ...]) -> Source:
    if path.is_dir():
        return Folder(path, match, suffixes)
    if not path.is_file():
        raise ConfigError(f"there is no file or folder {path}")
    match path.suffix.lower():
        case ".jsonl" | ".ndjson":
            return JsonLines(path)
        case ".csv" | ".tsv":
            return Csv(path, column)
        case ".parquet" | ".pq":
            return Parquet(path, column)
    raise ConfigError(f"{path}: give a folder, an s3:// prefix, or a .jsonl, .csv, .tsv or .parquet file")
