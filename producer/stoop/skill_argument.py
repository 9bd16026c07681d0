"""A skill's name as an argument or option of a command."""

import typer

from stoop_schemas.skills import skills

__all__ = ["known_skill"]


def known_skill(name: str) -> str:
    """Return the name if a skill has it; raise `typer.BadParameter` with the names that are known."""
    if name not in skills():
        raise typer.BadParameter(f"{name!r} is not one of {', '.join(skills())}.")
    return name
