"""The command line of `stoop inspect`."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console

from stoop_worker.errors import CheckpointError, ConfigError, ImageError, WorkerError
from stoop_worker.images import Crops, ImageLimits, cut, load
from stoop_worker.inspection.facts import Facts, facts_of
from stoop_worker.inspection.headers import header_download
from stoop_worker.inspection.show import show
from stoop_worker.models.catalog import read_catalog
from stoop_worker.models.loading.download import locate
from stoop_worker.models.moondream.model import Moondream
from stoop_worker.models.moondream.model import load as load_moondream
from stoop_worker.models.moondream.statistics import LayerStatistics, prompt_statistics

__all__ = ["command"]

_DTYPES = ("bfloat16", "float16", "float32")


def command(
    checkpoint: Annotated[str, typer.Argument(help="A folder, file, short name, or Hugging Face repo id@commit.")],
    dtype: Annotated[str, typer.Option(metavar="|".join(_DTYPES), help="The worker's dtype.")] = "bfloat16",
    max_context: Annotated[int | None, typer.Option(min=1, help="The worker's longest context, in tokens.")] = None,
    prompt: Annotated[
        str | None, typer.Option(help="Load a Moondream on the CPU, and measure its layers on this question.")
    ] = None,
    image: Annotated[Path | None, typer.Option(help="An image file for --prompt.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show a checkpoint's config, sizes and dtypes, and the memory that it needs.

    From a repository it fetches the config and the headers of the weights, some 100 kB a file.

    For example: stoop inspect moondream2 --json
    """
    if dtype not in _DTYPES:
        raise typer.BadParameter(f"--dtype takes {', '.join(_DTYPES)}")
    if image is not None and prompt is None:
        raise typer.BadParameter("--image needs --prompt")
    try:
        facts, layers = _inspected(checkpoint, getattr(torch, dtype), max_context, (prompt, image))
    except WorkerError as error:
        typer.echo(f"stoop inspect: {error}", err=True)
        raise typer.Exit(2 if isinstance(error, ConfigError | CheckpointError | ImageError) else 1) from error
    if as_json:
        print(json.dumps({**asdict(facts), "layers": [asdict(layer) for layer in layers]}))
    else:
        show(facts, layers, Console(soft_wrap=True))


def _inspected(
    checkpoint: str,
    dtype: torch.dtype,
    max_context: int | None,
    asked: tuple[str | None, Path | None],
) -> tuple[Facts, list[LayerStatistics]]:
    source, _, revision = (checkpoint, "", "") if Path(checkpoint).exists() else checkpoint.partition("@")
    chosen = read_catalog().choose(source, revision or None)
    licence = chosen.entry.licence if chosen.entry else None
    with header_download(licence) as download:
        found = locate(chosen.source, chosen.revision, download, licence=licence)
        facts = facts_of(found, dtype, max_context)
    prompt, image = asked
    if prompt is None:
        return facts, []
    if facts.family != "moondream":
        raise ConfigError(f"--prompt measures a Moondream, and this is of the family {facts.family}")
    if not Path(chosen.source).exists():
        size = sum(facts.files.values()) / 1e9
        typer.echo(f"stoop inspect: --prompt loads the whole model: {size:.2f} GB, downloaded unless cached", err=True)
    model = load_moondream(chosen.source, device="cpu", dtype=torch.float32, revision=chosen.revision)
    return facts, prompt_statistics(model, prompt, None if image is None else _cut(model, image))


def _cut(model: Moondream, image: Path) -> Crops:
    try:
        encoded = image.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {image}: {error.strerror}") from error
    return cut(load(encoded, ImageLimits()), model.config.vision.geometry)
