"""The options of `stoop bulk`."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import typer

from stoop.bulk.row import Ask
from stoop.bulk.sources.each_value import read_objects
from stoop.form_option import form_option
from stoop.local_path import on_this_machine
from stoop.skill_argument import known_skill
from stoop_schemas.skill import CaptionLength, Settings
from stoop_schemas.skills import skills
from stoop_schemas.transcript import Timestamps

__all__ = ["BulkOptions"]

_FIELDS = ("length", "model", "language", "prompt", "timestamps", "vad", "parallel")


@dataclass(frozen=True)
class BulkOptions:
    """The question about every image, the folder of the results, and the pace and limits of the run."""

    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", callback=on_this_machine, help="Folder for the results; give the same one to resume."
        ),
    ] = None
    skill: Annotated[
        str | None,
        typer.Option(
            parser=known_skill,
            metavar="SKILL",
            autocompletion=lambda: list(skills()),
            help="query, caption, detect, point or another; rows of a file may name their own.",
        ),
    ] = None
    question: Annotated[list[str] | None, typer.Option(help="The question (query); repeat it for several.")] = None
    object: Annotated[
        list[str] | None, typer.Option(help="The object to look for (detect, point); repeat it for several.")
    ] = None
    objects_from: Annotated[Path | None, typer.Option(help="A text file with one object to look for on each line.")] = (
        None
    )
    length: Annotated[CaptionLength | None, typer.Option(help="Length of the caption (caption).")] = None
    language: Annotated[str | None, typer.Option(help="Code of the spoken language (transcribe, translate).")] = None
    prompt: Annotated[str | None, typer.Option(help="Words that the speech continues (transcribe, translate).")] = None
    timestamps: Annotated[Timestamps | None, typer.Option(help="The times in a transcript: segment by default.")] = None
    vad: Annotated[bool | None, typer.Option("--vad", help="Leave out the parts without speech.")] = None
    parallel: Annotated[bool | None, typer.Option("--parallel", help="Work on all windows of a file at once.")] = None
    reasoning: Annotated[
        bool | None, typer.Option("--reasoning/--no-reasoning", help="Let the model think first (query).")
    ] = None
    temperature: Annotated[float | None, typer.Option(help="0 always takes the likeliest token.")] = None
    top_p: Annotated[float | None, typer.Option(help="Sample from this share of the likeliest tokens.")] = None
    max_tokens: Annotated[int | None, typer.Option(help="Maximum tokens in an answer.")] = None
    max_objects: Annotated[int | None, typer.Option(help="Maximum number of boxes or points.")] = None
    seed: Annotated[int | None, typer.Option(help="The same seed repeats the same answers.")] = None
    top_k: Annotated[int | None, typer.Option(help="Sample from this many of the likeliest tokens.")] = None
    stop: Annotated[list[str] | None, typer.Option(help="End an answer before this text; repeat it for more.")] = None
    presence_penalty: Annotated[
        float | None, typer.Option(help="Make tokens less likely once the answer has them.")
    ] = None
    frequency_penalty: Annotated[float | None, typer.Option(help="Make tokens less likely each time they occur.")] = (
        None
    )
    response_format: Annotated[Any, form_option()] = None
    regex: Annotated[str | None, typer.Option(help="Answer with a text that this regular expression matches.")] = None
    min_pixels: Annotated[int | None, typer.Option(help="Enlarge smaller images to this many pixels (Qwen3-VL).")] = (
        None
    )
    max_pixels: Annotated[int | None, typer.Option(help="Shrink larger images to this many pixels (Qwen3-VL).")] = None
    adapter: Annotated[str | None, typer.Option(help="The id of a LoRA adapter of the worker.")] = None
    column: Annotated[str | None, typer.Option(help="Column with a table's images; by default image.")] = None
    match: Annotated[str | None, typer.Option(help="Only names that match this, such as '*/front_*.jpg'.")] = None
    rows: Annotated[int | None, typer.Option(min=1, help="Only this many rows of the source.")] = None
    lane: Annotated[str, typer.Option(help="Lane of the workers.")] = "bulk"
    model: Annotated[str | None, typer.Option(help="Short name of a model; see `stoop models`.")] = None
    in_flight: Annotated[int, typer.Option(min=1, max=100_000, help="Maximum images in flight.")] = 512
    max_failures: Annotated[str, typer.Option(help="Stop beyond this count (50) or share (5%) of failures.")] = "50%"
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Try the failed rows again.")] = False
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count images, bytes, tokens and time.")] = False
    rate: Annotated[float | None, typer.Option(min=1e-6, help="Images a second, to estimate a dry run's time.")] = None
    probe: Annotated[
        int | None, typer.Option(min=1, max=1024, help="Run this many rows to measure a dry run's rate.")
    ] = None
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between progress lines without a terminal.")] = 10.0
    json: Annotated[bool, typer.Option("--json", help="Print the summary or the plan as JSON, also for errors.")] = (
        False
    )

    @cached_property
    def objects(self) -> tuple[str, ...]:
        """The objects to look for in every image, each once; raises `ConfigError` if their file cannot be read."""
        listed = read_objects(self.objects_from) if self.objects_from else []
        return tuple(dict.fromkeys([*(self.object or ()), *listed]))

    @cached_property
    def several(self) -> dict[str, tuple[str, ...]]:
        """The fields with more than one value; each value has a row of its own."""
        given = {"object": self.objects, "question": tuple(dict.fromkeys(self.question or ()))}
        return {name: values for name, values in given.items() if len(values) > 1}

    @property
    def ask(self) -> Ask:
        """The question about every image; the first one, if there are several questions or objects."""
        fields = {name: getattr(self, name) for name in _FIELDS} | {"reasoning": self.reasoning}
        fields["object"] = self.objects[0] if self.objects else None
        fields["question"] = self.question[0] if self.question else None
        settings = {name: getattr(self, name) for name in Settings.__struct_fields__}
        return Ask(self.skill, _given(fields), _given(settings))

    @property
    def asked(self) -> dict[str, Any]:
        """The options that distinguish one run from another."""
        ask = self.ask
        several = {name: list(values) for name, values in self.several.items()}
        return {"skill": ask.skill, "lane": self.lane, **ask.fields, **several, **ask.settings}


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
