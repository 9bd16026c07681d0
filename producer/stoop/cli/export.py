"""`stoop export` and `stoop draw`: results in the formats of other tools, and on their images."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from stoop.cli.exit_codes import FAILED, USAGE, exit_on_error
from stoop.cli.operator_options import AsJson
from stoop.cli.render_queue import print_json
from stoop.config import ProducerConfig
from stoop.errors import ConfigError
from stoop.export import FormatName, Report
from stoop.export import export as write_export
from stoop.local_path import on_this_machine
from stoop.terminal import legible

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["draw", "export"]

_Results = Annotated[
    str,
    typer.Argument(help="A folder that `stoop bulk` wrote, a file with one result per line, or - for standard input."),
]
_Images = Annotated[
    str | None, typer.Option(help="The images' folder, or s3 to read them at their own s3:// addresses.")
]
_DRAWN = (".png", ".jpg", ".jpeg", ".webp")


def export(
    results: Annotated[
        list[str],
        typer.Argument(
            help="Folders that `stoop bulk` wrote, files with one result per line, or - for standard input."
        ),
    ],
    format: Annotated[FormatName, typer.Option("--format", help="The output format.")],
    out: Annotated[
        Path, typer.Option(callback=on_this_machine, help="The file or folder to write; it must not exist yet.")
    ],
    images: _Images = None,
    json: AsJson = False,
) -> None:
    """Write results as COCO, YOLO, Label Studio, FiftyOne, CVAT, Parquet or WebDataset, transcripts as subtitles.

    Rows without an answer are left out and counted. An image that is missing is listed in OUT.errors.jsonl, and the
    rest is written: the exit code is 1 then. COCO and Label Studio write a folder, or one file if OUT ends in .json.
    """
    with exit_on_error(as_json=json), _watched() as watch:
        report = write_export(results, format, out, images=images, config=ProducerConfig(), watch=watch)
    _print_report(out, report, as_json=json)


def draw(
    results: _Results,
    out: Annotated[
        Path,
        typer.Option(
            callback=on_this_machine,
            help="A new folder for drawings and a contact sheet; or an .html file: the sheet alone.",
        ),
    ],
    images: _Images = None,
    image: Annotated[Path | None, typer.Option(help="Draw all results on this one image, into the file OUT.")] = None,
    page: Annotated[int, typer.Option(min=1, help="Images on one page of the contact sheet.")] = 200,
    json: AsJson = False,
) -> None:
    """Draw boxes, points and captions on the images of results, with a contact sheet to look through.

    The exit code is 1 if an image is missing, and 2 if none could be drawn; the sheet says why.
    """
    if image is not None and images is not None:
        raise typer.BadParameter("choose --image or --images")
    with exit_on_error(as_json=json):
        from stoop.draw.gallery import draw_gallery, draw_one

        if image is not None:
            _save(draw_one(results, _read(image)), out)
            return
        with _watched() as watch:
            report = draw_gallery(results, out, images=images, config=ProducerConfig(), page_images=page, watch=watch)
    _print_report(out, report, as_json=json)


class _Progress:
    """The report's current counts, read at each redraw."""

    def __init__(self) -> None:
        self._report: Report | None = None

    def watch(self, report: Report) -> None:
        self._report = report

    def __rich__(self) -> str:
        return self._report.progress if self._report is not None else ""


@contextmanager
def _watched() -> Iterator[Callable[[Report], None]]:
    """Show progress on a terminal; yield the function that receives the report."""
    console, progress = Console(stderr=True), _Progress()
    if not console.is_terminal:
        yield progress.watch
        return
    with console.status(progress):
        yield progress.watch


def _print_report(out: Path, report: Report, *, as_json: bool) -> None:
    if as_json:
        print_json({"out": str(out), **report.facts()})
    else:
        for line in _lines(out, report):
            typer.echo(legible(line))
        if report.errors:
            typer.echo(legible(f"{report.errors} could not be used, for example {report.last_error}"), err=True)
            typer.echo(legible(f"all of them are in {report.errors_file}"), err=True)
    if not report.written["images"] and not report.written["rows"]:
        raise typer.Exit(USAGE)
    raise typer.Exit(FAILED if report.errors else 0)


def _lines(out: Path, report: Report) -> list[str]:
    lines = [f"wrote {out}: {_counted(report.written) or 'nothing'}"]
    if report.turned:
        lines.append(f"turned: {report.turned:,} images by their EXIF orientation, with all boxes and points")
    if left := _counted(report.left_out):
        lines.append(f"left out: {left}; the format has no place for them")
    if report.unfinished:
        lines.append(f"left out: {_counted(report.unfinished)}; they have no answer")
    if report.without_image:
        lines.append(f"left out: {report.without_image:,} rows; they name no image")
    return lines


def _counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {_kind(kind, count)}" for kind, count in counts.items() if count)


def _kind(plural: str, count: int) -> str:
    return plural if count != 1 else plural.removesuffix("es" if plural == "boxes" else "s")


def _read(path: Path) -> bytes:
    try:
        return path.expanduser().read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error


def _save(drawn: "Image", out: Path) -> None:
    if out.suffix.lower() not in _DRAWN:
        raise ConfigError(f"--image writes {', '.join(_DRAWN)} files")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        drawn.save(out)
    except OSError as error:
        raise ConfigError(f"cannot write {out}: {error}") from error
