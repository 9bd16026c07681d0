"""The form of an answer as an option of a command."""

import json
from pathlib import Path
from typing import Any

import typer

__all__ = ["form_option"]


def form_option(panel: str | None = None) -> Any:
    """Return the option `--response-format`, shown in this panel of the help."""
    return typer.Option(
        parser=_read,
        metavar="json|FILE",
        help="Answer in JSON: any object, or by the JSON schema in a file.",
        rich_help_panel=panel,
    )


def _read(given: str) -> dict[str, Any]:
    """Return the response format of `json`, or of a file with a JSON schema; raise `typer.BadParameter`."""
    if given == "json":
        return {"type": "json_object"}
    try:
        schema = json.loads(Path(given).read_text(encoding="utf-8"))
    except OSError as error:
        raise typer.BadParameter(f"give json, or a file with a JSON schema: {given!r}: {error.strerror}.") from error
    except ValueError as error:
        raise typer.BadParameter(f"{given!r} is not JSON: {error}.") from error
    return {"type": "json_schema", "json_schema": {"schema": schema}}
