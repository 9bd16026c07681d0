"""The command `stoop demo`."""

from pathlib import Path
from typing import Annotated

import typer

from stoop.cli.exit_codes import FAILED, exit_on_error

__all__ = ["demo"]


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the annotated images.")] = Path("demo-output"),
    model: Annotated[str | None, typer.Option(help="Model folder; by default the bundled demo model.")] = None,
) -> None:
    """Run real jobs through Redis, S3 and the engine on this machine, and show them."""
    with exit_on_error(as_json=False):
        from stoop.demo import run_demo

        completed = run_demo(out, model)
    raise typer.Exit(0 if completed else FAILED)
