"""The options of `stoop keys new`."""

from dataclasses import dataclass
from typing import Annotated

import typer

__all__ = ["KeyOptions"]


@dataclass(frozen=True)
class KeyOptions:
    """The rights and limits of a new key; lists are comma-separated, and an empty one allows all."""

    tenant: Annotated[str | None, typer.Option(help="Tenant of its jobs.")] = None
    scopes: Annotated[str, typer.Option(help="jobs, operator, metrics.")] = "jobs"
    lanes: Annotated[str, typer.Option(help="Lanes that its jobs may use; the first is the default.")] = ""
    models: Annotated[str, typer.Option(help="Models that its jobs may use.")] = ""
    days: Annotated[float | None, typer.Option(min=0, help="Days until it expires.")] = None
    requests_per_minute: Annotated[int | None, typer.Option(min=1, help="Most requests a minute.")] = None
    tokens_per_minute: Annotated[int | None, typer.Option(min=1, help="Most tokens a minute.")] = None
    concurrent: Annotated[int | None, typer.Option(min=1, help="Most requests in progress at once.")] = None
