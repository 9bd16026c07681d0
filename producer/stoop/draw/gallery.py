"""All results of a run drawn on their images, and shown on a contact sheet."""

from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from PIL import Image

from stoop.draw.drawing import draw_marks, draw_texts, open_canvas
from stoop.draw.sheet import Sheet
from stoop.draw.tile import tile_html
from stoop.errors import ConfigError, ImageUnreadable, StoopError
from stoop.export.ahead import ahead
from stoop.export.formats.annotated import Annotated, annotate
from stoop.export.gathered import Gathered, ImageEntry
from stoop.export.images import Images, open_images, read_inline
from stoop.export.naming import own_name, stem, with_digest
from stoop.export.orientation import STORED
from stoop.export.report import Report
from stoop.export.rows import BadLine, Row, read_rows
from stoop.export.run import staged

if TYPE_CHECKING:
    from stoop.config import ProducerConfig

__all__ = ["PAGE_IMAGES", "draw_gallery", "draw_one"]

PAGE_IMAGES: Final = 200
"""Tiles on one page of a contact sheet: a few MB."""

_INDEX: Final = "index.html"
_DRAWN: Final = "drawn"
_JPEG: Final = frozenset({".jpg", ".jpeg"})
_QUALITY: Final = 90
_SHEET_PIXELS: Final = 1280  # per side: a thumbnail needs no more, and large images are slow to draw on


@dataclass(frozen=True, slots=True)
class _Place:
    """The place of a gallery: its first page, and the folder of full-size drawings or None."""

    page: Path
    drawings: Path | None


def draw_gallery(
    source: str,
    out: Path,
    *,
    images: str | None,
    config: "ProducerConfig",
    page_images: int = PAGE_IMAGES,
    watch: Callable[[Report], None] = lambda report: None,
) -> Report:
    """Draw every image of the results, into the folder `out` with an `index.html` or only on the page(s) `out`.

    Failed rows and missing images have a tile too, with the reason. Raises `ConfigError` if nothing can be read or
    written.
    """
    out = out.expanduser().absolute()
    page_only = out.suffix in (".html", ".htm")
    if out.exists() and (page_only or not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"{out} exists already: give another name, or delete it first")
    report = Report(out.with_name(f"{out.name}.errors.jsonl"))
    watch(report)
    with closing(open_images(images, config)) as found, staged(out) as staging, closing(report):
        report.errors_file.unlink(missing_ok=True)
        made = staging / "made"
        place = _Place(made / out.name, None) if page_only else _Place(made / _INDEX, made / _DRAWN)
        made.mkdir()
        with closing(Gathered(staging / "rows.db")) as gathered:
            _gather(source, gathered, found, report)
            _draw_all(gathered, found, report, place=place, title=source, page_images=page_images)
        if page_only:
            # the first page is moved last: once it exists, all pages do
            for page in sorted(made.iterdir(), reverse=True):
                page.replace(out.with_name(page.name))
        else:
            made.replace(out)
    return report


def draw_one(source: str, image: bytes) -> Image.Image:
    """Return the image with all completed results of the source on it; raises `ConfigError` or `ImageUnreadable`."""
    rows = [row for row in read_rows(source) if isinstance(row, Row) and row.completed]
    if not rows:
        raise ConfigError(f"{source} has no completed result to draw")
    canvas, orientation = open_canvas(image)
    return _whole(canvas, annotate(ImageEntry(1, "", "the image", orientation=orientation), rows))


def _gather(source: str, gathered: Gathered, images: Images, report: Report) -> None:
    for row in read_rows(source):
        if isinstance(row, BadLine):
            report.error(row.place, row.message)
            continue
        report.rows += 1
        if not row.completed:
            report.unfinished[row.ending] += 1
        address = row.address or ""
        number = gathered.find(address) or _add_image(gathered, address, _name(images, address) or f"row {report.rows}")
        gathered.add_row(number, row)
    if not report.rows:
        raise ConfigError(f"there are no results in {source}")


def _name(images: Images, address: str) -> str:
    """Return a path made of an image's address; for a file in the folder of `--images`, its path within that folder."""
    with suppress(ImageUnreadable):
        if address.startswith("/"):
            return images.name(address)
    return own_name(address) if address else ""


def _add_image(gathered: Gathered, address: str, found: str) -> int:
    name = found
    while gathered.is_taken(stem(name)):  # another image may already have the new name
        name = with_digest(name, address or found)
    return gathered.add_image(address, found=name, name=name, distinct_part=stem(name))


def _draw_all(
    gathered: Gathered, images: Images, report: Report, *, place: _Place, title: str, page_images: int
) -> None:
    unfinished = sum(report.unfinished.values())
    count = gathered.count()
    facts = f"{count:,} images, {report.rows - unfinished:,} answers, {unfinished:,} failed"
    with Sheet(place.page, Path(title).name or title, facts, count, page_images) as sheet:
        for annotated, canvas, problem in _canvases(gathered, images):
            # a failed row is expected to have no drawing
            if problem and any(row.completed for row in annotated.rows):
                report.error(annotated.image.address, problem)
            link = ""
            if canvas is not None:
                report.written["images"] += 1
                link = _save(canvas, annotated, place)
                canvas.thumbnail((_SHEET_PIXELS, _SHEET_PIXELS))
                draw_marks(canvas, annotated.boxes, annotated.points)
            sheet.add(tile_html(annotated, canvas, problem=problem, link=link))


def _canvases(gathered: Gathered, images: Images) -> Iterator[tuple[Annotated, Image.Image | None, str]]:
    def read(annotated: Annotated) -> bytes:
        address = annotated.image.address
        inline = read_inline(address)
        return images.read(address) if inline is None else inline

    every = (annotate(entry, gathered.rows(entry.number)) for entry in gathered.images_by_name())
    for annotated, encoded in ahead(read, every):
        if not annotated.image.address:
            yield annotated, None, ""
        elif isinstance(encoded, StoopError):
            yield annotated, None, str(encoded)
        else:
            yield _opened(annotated, encoded)


def _opened(annotated: Annotated, encoded: bytes) -> tuple[Annotated, Image.Image | None, str]:
    try:
        canvas, orientation = open_canvas(encoded)
    except ImageUnreadable as error:
        return annotated, None, str(error)
    if orientation != STORED:
        annotated = annotate(replace(annotated.image, orientation=orientation), annotated.rows)
    return annotated, canvas, ""


def _save(canvas: Image.Image, annotated: Annotated, place: _Place) -> str:
    """Write the full-size drawing, if there is a folder for drawings, and return its path below the page's folder."""
    if place.drawings is None or not any(row.completed for row in annotated.rows):
        return ""
    name = annotated.image.name
    lossy = PurePosixPath(name).suffix.lower() in _JPEG
    link = f"{_DRAWN}/{stem(name)}{'.jpg' if lossy else '.png'}"
    path = place.page.parent / link
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        return ""  # stores have no folders: `a` and `a/b.jpg` may both be images
    drawn = _whole(canvas.copy(), annotated)
    # name the format, because Pillow reads none from a name such as `..png`
    if lossy:
        drawn.save(path, "JPEG", quality=_QUALITY)
    else:
        drawn.save(path, "PNG")
    return f"./{link}"


def _whole(canvas: Image.Image, annotated: Annotated) -> Image.Image:
    draw_marks(canvas, annotated.boxes, annotated.points)
    answers = (f"{question} {answer}" if question else answer for question, answer in annotated.answers)
    texts = [*annotated.captions, *answers]
    return draw_texts(canvas, texts) if texts else canvas
