"""A skill's name as an argument or option of a command."""

import typer

from stoop_schemas.failure import Rejected
from stoop_schemas.skills import spec_of

__all__ = ["known_skill"]


def known_skill(name: str) -> str:
    """Return the name if a skill has it; raise `typer.BadParameter` with the names that are known."""
    try:
        return spec_of(name).name
    except Rejected as error:
        raise typer.BadParameter(str(error)) from error
