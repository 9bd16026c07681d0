"""The options of `stoop exporter`; each is a variable too."""

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

import typer

from stoop.errors import ConfigError
from stoop_schemas.names import DEFAULT_LANES

__all__ = ["ExporterOptions"]

_PARTITION = re.compile(r"[0-9]{1,5}")


def _option(variable: str, help_text: str, **more: Any) -> Any:
    return typer.Option(envvar=f"STOOP_{variable}", help=help_text, show_envvar=False, **more)


@dataclass(frozen=True)
class ExporterOptions:
    """The exporter's address, and the part of the queue that it reads."""

    host: Annotated[str, _option("EXPORTER_HOST", "Address to listen on.")] = "127.0.0.1"
    port: Annotated[int, _option("EXPORTER_PORT", "Port; 0 takes a free one.", min=0, max=65535)] = 9091
    partitions: Annotated[str, _option("PARTITIONS", "Partitions to read (comma-separated).")] = "0"
    lanes: Annotated[str, _option("LANES", "Lanes to show even when they are empty (comma-separated).")] = ""
    tenants: Annotated[
        int,
        _option("EXPORTER_TENANTS", "Show this many tenants of each lane, those with the most jobs.", min=0, max=100),
    ] = 0

    @cached_property
    def partition_numbers(self) -> tuple[int, ...]:
        """The parsed `partitions`; raises `ConfigError`."""
        numbers = [number.strip() for number in self.partitions.split(",")]
        if not all(_PARTITION.fullmatch(number) for number in numbers):
            raise ConfigError(f"--partitions (STOOP_PARTITIONS): give numbers from 0 to 99999, not {self.partitions!r}")
        return tuple(dict.fromkeys(map(int, numbers)))

    @cached_property
    def lane_names(self) -> tuple[str, ...]:
        """The parsed `lanes`, after the default ones."""
        given = (name.strip() for name in self.lanes.split(","))
        return tuple(dict.fromkeys((*DEFAULT_LANES, *filter(None, given))))
