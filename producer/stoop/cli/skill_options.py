"""The options of the commands that run a skill, written once."""

import inspect
from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, fields
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from stoop.form_option import form_option
from stoop_schemas.skill import Settings

__all__ = ["JobOptions", "SkillOptions", "TextOptions", "sampling", "with_options"]


def sampling(help_text: str) -> Any:
    """Return an option of the panel of sampling settings."""
    return typer.Option(help=help_text, rich_help_panel="Sampling")


@dataclass(frozen=True, slots=True)
class JobOptions:
    """Options of every skill: the job's place and model, and how to wait for its answer."""

    lane: Annotated[str | None, typer.Option(help="interactive, bulk, or another lane of the workers.")] = None
    model: Annotated[str | None, typer.Option(help="Short name of a model; see `stoop models`.")] = None
    timeout: Annotated[float | None, typer.Option(min=0.001, help="Seconds to wait for the answer.")] = None
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Print the job's id; `stoop result` gets the answer.")] = (
        False
    )
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object, also for errors.")] = False

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that were given, of those that the command has."""
        given = {name: getattr(self, name, None) for name in Settings.__struct_fields__}
        return {name: value for name, value in given.items() if value is not None}


@dataclass(frozen=True, slots=True)
class TextOptions(JobOptions):
    """Options that run a skill whose answer is written text, and show the answer."""

    stream: Annotated[bool, typer.Option("--stream", help="Show the answer as it is generated.")] = False
    temperature: Annotated[float | None, sampling("0 always takes the likeliest token.")] = None
    top_p: Annotated[float | None, sampling("Sample from this share of the likeliest tokens.")] = None
    max_tokens: Annotated[int | None, sampling("Maximum tokens in the answer.")] = None
    seed: Annotated[int | None, sampling("The same seed repeats the same answer.")] = None

    top_k: Annotated[int | None, sampling("Sample from this many of the likeliest tokens.")] = None
    stop: Annotated[list[str] | None, sampling("End the answer before this text; may be given again.")] = None
    presence_penalty: Annotated[float | None, sampling("Make tokens less likely once the answer has them.")] = None
    frequency_penalty: Annotated[float | None, sampling("Make tokens less likely each time they occur.")] = None
    response_format: Annotated[Any, form_option("Sampling")] = None
    regex: Annotated[str | None, sampling("Answer with a text that this regular expression matches.")] = None
    min_pixels: Annotated[int | None, sampling("Enlarge smaller images to this many pixels (Qwen3-VL).")] = None
    max_pixels: Annotated[int | None, sampling("Shrink larger images to this many pixels (Qwen3-VL).")] = None
    adapter: Annotated[str | None, typer.Option(help="The id of a LoRA adapter of the worker.")] = None


@dataclass(frozen=True, slots=True)
class SkillOptions(TextOptions):
    """Options that run a skill whose answer is written text or places in an image, and show the answer."""

    draw: Annotated[Path | None, typer.Option(help="Write the image with the answer drawn on it.")] = None
    max_objects: Annotated[int | None, sampling("Maximum number of boxes or points.")] = None


def _default(field: Field[Any]) -> Any:
    """Return the option's default; an option without one must be given."""
    return inspect.Parameter.empty if field.default is MISSING else field.default


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Turn the command's keyword parameter `options`, a dataclass, into one command-line option a field."""
    kind = get_type_hints(command)["options"]
    names = [field.name for field in fields(kind)]
    hints = get_type_hints(kind, include_extras=True)
    options = [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=_default(field), annotation=hints[field.name]
        )
        for field in fields(kind)
    ]
    own = [each for name, each in inspect.signature(command).parameters.items() if name != "options"]

    @wraps(command)
    def with_collected(**given: Any) -> None:
        collected = kind(**{name: given.pop(name) for name in names})
        command(**given, options=collected)

    # typer reads a command's parameters from both of these
    signature = inspect.Signature([*own, *options])
    with_collected.__signature__ = signature  # type: ignore[attr-defined]
    with_collected.__annotations__ = {name: each.annotation for name, each in signature.parameters.items()}
    return with_collected
