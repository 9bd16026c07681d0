"""Reads a caller's file up to a size limit."""

from pathlib import Path

from stoop.errors import StoopError

__all__ = ["read_file"]


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
