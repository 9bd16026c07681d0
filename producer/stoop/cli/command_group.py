"""Commands that are loaded only when they are called, so that `stoop --help` imports nothing they need.

`stoop.cli.app` lists some; others are entry points of the distribution (the worker needs torch).
"""

import gc
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points, metadata
from typing import Any, ClassVar, Final

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

__all__ = ["CommandEntry", "CommandGroup"]

_GROUP = "stoop.commands"
# typer does not export the base class of its usage errors
_UsageError: Final[Any] = typer.BadParameter.__base__


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """One command: its name, `module:name` of its function or `typer.Typer`, and its panel and text in `--help`."""

    name: str
    where: str
    panel: str
    help: str


class CommandGroup(TyperGroup):
    """A group of the commands `entries`, then of those of the entry points `stoop.commands`."""

    entries: ClassVar[Sequence[CommandEntry]] = ()
    found_panel: ClassVar[str | None] = None
    found_help: ClassVar[Mapping[str, str]] = {}

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for each in self.entries:
            found = EntryPoint(each.name, each.where, _GROUP)
            self.commands[each.name] = _LoadedWhenCalled(found, each.help, each.panel)
        for found in sorted(entry_points(group=_GROUP), key=lambda found: found.name):
            help_text = self.found_help.get(found.name, f"See `stoop {found.name} --help`.")
            self.commands.setdefault(found.name, _LoadedWhenCalled(found, help_text, self.found_panel))

    def main(self, args: Sequence[str] | None = None, *positional: Any, **named: Any) -> Any:
        """Run the command line; with `--json`, usage errors are printed as JSON."""
        given = sys.argv[1:] if args is None else list(args)
        if "--json" not in given or not named.get("standalone_mode", True):
            return super().main(args, *positional, **named)
        try:
            returned = super().main(given, *positional, **{**named, "standalone_mode": False})
        except _UsageError as error:
            help_of = error.ctx.command_path if error.ctx else "stoop"
            problem = error.format_message()
            stop = "" if problem.endswith((".", "?")) else "."
            message = f"{problem}{stop} See `{help_of} --help`."
            print(json.dumps({"error": {"kind": "UsageError", "message": message, "exit_code": error.exit_code}}))
            sys.exit(error.exit_code)
        except typer.Abort:
            sys.exit("Aborted!")
        sys.exit(returned if isinstance(returned, int) else 0)


class _LoadedWhenCalled(TyperCommand):
    def __init__(self, found: EntryPoint, help_text: str, panel: str | None) -> None:
        super().__init__(name=found.name, callback=None, help=help_text, rich_help_panel=panel)
        self._found = found

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Load the real command, which parses the arguments and is then invoked by the context."""
        return self._load().make_context(info_name, args, parent=parent, **extra)

    def _load(self) -> Any:
        collects = gc.isenabled()
        gc.disable()  # as in `stoop.__main__`
        try:
            loaded = self._found.load()
        except ModuleNotFoundError as error:
            typer.echo(f"stoop {self._found.name} needs {error.name}: {_install(self._found.name)}", err=True)
            raise typer.Exit(2) from error
        finally:
            if collects:
                gc.enable()
        if isinstance(loaded, typer.Typer):
            return get_command(loaded)
        # typer's own panels cut long flags on a narrow terminal
        app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
        app.command(self._found.name)(loaded)
        return get_command(app)


def _install(command: str) -> str:
    extras = metadata("stoop").get_all("Provides-Extra") or []
    if command in extras:
        return f"pip install 'stoop[{command}]'"
    return "reinstall the package that provides this command, with its dependencies"
