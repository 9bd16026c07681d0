"""Reads a caller's file up to a size limit."""

import re
from pathlib import Path
from typing import Final

from stoop.errors import StoopError

__all__ = ["path_of", "read_file"]

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def path_of(source: str | Path, unreadable: type[StoopError]) -> Path:
    """Return the path of a caller's file; raises `unreadable` for an address that no worker reads, such as ftp://."""
    if isinstance(source, str) and (scheme := _SCHEME.match(source)):
        # the rest of the address may hold a password
        raise unreadable(f"no worker reads {scheme[0]} addresses: give s3://bucket/key, https://… or a file's path")
    return Path(source).expanduser()


def read_file(path: Path, unreadable: type[StoopError], most_bytes: int, *, wanted: str, smaller: str) -> bytes:
    """Return the bytes of a file; raises `unreadable` with a remedy.

    `wanted` names what to give in place of a folder, and `smaller` in place of a file with more than `most_bytes`.
    """
    try:
        with path.open("rb") as file:
            content = file.read(most_bytes + 1)
    except FileNotFoundError:
        raise unreadable(f"there is no file {path}") from None
    except IsADirectoryError:
        raise unreadable(f"{path} is a folder: give {wanted}") from None
    except OSError as error:
        raise unreadable(f"cannot read {path}: {error.strerror}") from error
    if len(content) > most_bytes:
        raise unreadable(f"{path} has more than {most_bytes >> 20} MiB: give {smaller}")
    return content
