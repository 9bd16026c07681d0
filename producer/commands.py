"""Commands of other packages of the distribution, found by name and loaded only when they are called.

`stoop --help` lists them without importing what they need (the worker needs torch).
"""

from importlib.metadata import EntryPoint, entry_points
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

__all__ = ["CommandGroup"]

_GROUP = "stoop.commands"


class CommandGroup(TyperGroup):
    """A group of commands that also has those of the entry points `stoop.commands`."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return our own commands, then those found."""
        own = super().list_commands(ctx)
        return [*own, *(name for name in sorted(entry_points(group=_GROUP).names) if name not in own)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return our own command, or one that stands in for what is found until it is called."""
        own = super().get_command(ctx, cmd_name)
        if own is not None:
            return own
        found = entry_points(group=_GROUP, name=cmd_name)
        return _LoadedWhenCalled(next(iter(found))) if found else None


class _LoadedWhenCalled(TyperCommand):
    def __init__(self, found: EntryPoint) -> None:
        help_text = f"Run the {found.name} (`stoop {found.name} --help` tells more)."
        super().__init__(name=found.name, callback=None, help=help_text)
        self._found = found

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Load the real command: it parses the arguments and is what the context then invokes."""
        return self._load().make_context(info_name, args, parent=parent, **extra)

    def _load(self) -> Any:
        try:
            loaded = self._found.load()
        except ModuleNotFoundError as error:
            typer.echo(
                f"stoop {self._found.name} needs {error.name}: pip install 'stoop[{self._found.name}]'", err=True
            )
            raise typer.Exit(2) from error
        if isinstance(loaded, typer.Typer):
            return get_command(loaded)
        app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        app.command()(loaded)
        return get_command(app)
