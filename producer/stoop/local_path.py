"""The check of options that name a file or a folder on this machine."""

from pathlib import Path

import typer

__all__ = ["on_this_machine"]


def on_this_machine(path: Path | None) -> Path | None:
    """Return the path; raise `BadParameter` for an object store's address, of which a folder `s3:` would be made."""
    if path is not None and path.parts[:1] == ("s3:",):
        raise typer.BadParameter("give a path on this machine, not an address in an object store")
    return path
