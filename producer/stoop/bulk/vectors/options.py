"""The options of `stoop bulk-embed`."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from stoop.bulk.output.output_folder import SHARD_ROWS
from stoop.bulk.row import Ask
from stoop.local_path import on_this_machine
from stoop_schemas.skill import Skill, VectorKind
from stoop_schemas.texts import TEXTS_LIMIT

__all__ = ["EmbedOptions", "Format"]

_FIELDS = ("model", "prompt_name", "dimensions", "truncate")


class Format(StrEnum):
    """The file format of the shards."""

    PARQUET = "parquet"
    NPY = "npy"


@dataclass(frozen=True)
class EmbedOptions:
    """The vectors to make of every text, their place and format, and the pace and limits of the run."""

    out: Annotated[
        Path,
        typer.Option("--out", "-o", callback=on_this_machine, help="Folder of the run; give the same one to resume."),
    ]
    vectors: Annotated[
        str | None, typer.Option(metavar="S3://BUCKET/PREFIX", help="Put the shards there instead of into --out.")
    ] = None
    format: Annotated[Format, typer.Option(help="Format of the shards.")] = Format.PARQUET
    shard_rows: Annotated[int, typer.Option(min=1, help="Texts in a shard.")] = SHARD_ROWS
    column: Annotated[str, typer.Option(help="Field or column with the texts.")] = "text"
    model: Annotated[str | None, typer.Option(help="Short name of a model; see `stoop models`.")] = None
    prompt_name: Annotated[str | None, typer.Option(help="One of the model's prompts, such as document.")] = None
    dimensions: Annotated[int | None, typer.Option(min=1, help="Shorter vectors, if the model allows them.")] = None
    kind: Annotated[
        list[VectorKind] | None, typer.Option(help="dense (alone by default), sparse or colbert; repeat it for more.")
    ] = None
    truncate: Annotated[bool, typer.Option("--truncate", help="Cut the end of a text that is too long.")] = False
    rows: Annotated[int | None, typer.Option(min=1, help="Only this many texts of the source.")] = None
    lane: Annotated[str, typer.Option(help="Lane of the workers.")] = "bulk"
    texts_per_job: Annotated[int, typer.Option(min=1, max=TEXTS_LIMIT, help="Most texts in a job.")] = 64
    in_flight: Annotated[int, typer.Option(min=1, max=100_000, help="Most jobs in flight.")] = 64
    max_failures: Annotated[str, typer.Option(help="Stop beyond this count (50) or share (5%) of failures.")] = "50%"
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Try the failed texts again.")] = False
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between progress lines without a terminal.")] = 10.0
    json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON, also for errors.")] = False

    @property
    def ask(self) -> Ask:
        """The job of every group of texts."""
        fields = {name: getattr(self, name) for name in _FIELDS}
        fields["kinds"] = [kind.value for kind in self.kind] if self.kind else None
        return Ask(Skill.EMBED.value, {name: value for name, value in fields.items() if value not in (None, False)})

    @property
    def asked(self) -> dict[str, Any]:
        """The options that distinguish one run from another."""
        ask = self.ask
        return {
            "skill": ask.skill,
            "lane": self.lane,
            **ask.fields,
            "format": self.format.value,
            "vectors": self.vectors,
            "column": self.column,
        }
