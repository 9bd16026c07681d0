"""The command `stoop demo`."""

from pathlib import Path
from typing import Annotated

import typer

from producer.reporting import FAILED, reported

__all__ = ["demo"]


def demo(
    out: Annotated[Path, typer.Option(help="Where the annotated images go.")] = Path("demo-output"),
    model: Annotated[str | None, typer.Option(help="Folder of the model; by default the one that comes along.")] = None,
) -> None:
    """Run real jobs through Redis, S3 and the engine on this machine, and show them."""
    with reported(as_json=False):
        from producer.demo import run_demo

        completed = run_demo(out, model)
    raise typer.Exit(0 if completed else FAILED)
