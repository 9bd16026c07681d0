"""All results of a run drawn on their images, and shown on a contact sheet."""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from PIL import Image

from producer.draw.drawing import draw_marks, draw_texts, open_canvas
from producer.draw.sheet import Sheet
from producer.draw.tile import tile_html
from producer.errors import ConfigError, ImageUnreadable, StoopError
from producer.export.ahead import ahead
from producer.export.annotated import Annotated, annotate
from producer.export.gathered import Gathered, ImageEntry
from producer.export.images import Images, open_images, read_inline
from producer.export.naming import own_name, stem, told_apart
from producer.export.report import Report
from producer.export.rows import BadLine, Row, read_rows
from producer.export.run import staged

if TYPE_CHECKING:
    from producer.config import ProducerConfig

__all__ = ["PAGE_IMAGES", "draw_gallery", "draw_one"]

PAGE_IMAGES: Final = 200
"""Tiles on one page of a contact sheet: a few MB."""

_INDEX: Final = "index.html"
_DRAWN: Final = "drawn"
_JPEG: Final = frozenset({".jpg", ".jpeg"})
_QUALITY: Final = 90
_SHEET_PIXELS: Final = 1280  # of a side: a thumbnail needs no more, and large images are slow to draw on


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a gallery goes: its first page, and the folder of whole drawings or None."""

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
    """Draw every image of the results: into the folder `out` with an `index.html`, or on the page(s) `out` alone.

    Rows that failed and images that are not there have a tile too, which says why. Raises `ConfigError` when nothing
    can be read or written.
    """
    out = out.expanduser().absolute()
    page_only = out.suffix in (".html", ".htm")
    if out.exists() and (page_only or not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"{out} is there already: give another name, or delete it first")
    report = Report(out.with_name(f"{out.name}.errors.jsonl"))
    watch(report)
    with closing(open_images(images, config)) as found, staged(out) as staging, closing(report):
        report.errors_file.unlink(missing_ok=True)
        made = staging / "made"
        place = _Place(made / out.name, None) if page_only else _Place(made / _INDEX, made / _DRAWN)
        made.mkdir()
        with closing(Gathered(staging / "rows.db")) as gathered:
            _gather(source, gathered, report)
            _draw_all(gathered, found, report, place=place, title=source, page_images=page_images)
        if page_only:
            # the first page comes last: once it is there, all are
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
    annotated = annotate(ImageEntry(1, "", "the image"), rows)
    return _whole(open_canvas(image), annotated)


def _gather(source: str, gathered: Gathered, report: Report) -> None:
    for row in read_rows(source):
        if isinstance(row, BadLine):
            report.error(row.place, row.message)
            continue
        report.rows += 1
        if not row.completed:
            report.unfinished[row.ending] += 1
        address = row.address or ""
        number = gathered.find(address) or _add_image(gathered, address, f"row {report.rows}")
        gathered.add_row(number, row)
    if not report.rows:
        raise ConfigError(f"there are no results in {source}")


def _add_image(gathered: Gathered, address: str, otherwise: str) -> int:
    name = own_name(address) if address else otherwise
    if gathered.is_told(stem(name)):
        name = told_apart(name, address or otherwise)
    return gathered.add_image(address, found=name, name=name, told=stem(name))


def _draw_all(
    gathered: Gathered, images: Images, report: Report, *, place: _Place, title: str, page_images: int
) -> None:
    unfinished = sum(report.unfinished.values())
    count = gathered.count()
    facts = f"{count:,} images, {report.rows - unfinished:,} answers, {unfinished:,} failed"
    with Sheet(place.page, Path(title).name or title, facts, count, page_images) as sheet:
        for annotated, canvas, problem in _canvases(gathered, images):
            # of a row that failed, it is no wonder
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

    every = (annotate(entry, gathered.rows(entry.number)) for entry in gathered.images())
    for annotated, encoded in ahead(read, every):
        if not annotated.image.address:
            yield annotated, None, ""
        elif isinstance(encoded, StoopError):
            yield annotated, None, str(encoded)
        else:
            yield annotated, *_opened(encoded)


def _opened(encoded: bytes) -> tuple[Image.Image | None, str]:
    try:
        return open_canvas(encoded), ""
    except ImageUnreadable as error:
        return None, str(error)


def _save(canvas: Image.Image, annotated: Annotated, place: _Place) -> str:
    """Write the whole drawing, where drawings are wanted, and return its path below the page's folder."""
    if place.drawings is None or not any(row.completed for row in annotated.rows):
        return ""
    name = annotated.image.name
    lossy = PurePosixPath(name).suffix.lower() in _JPEG
    link = f"{_DRAWN}/{stem(name)}{'.jpg' if lossy else '.png'}"
    path = place.page.parent / link
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        return ""  # stores know no folders: `a` and `a/b.jpg` may both be images there
    drawn = _whole(canvas.copy(), annotated)
    if lossy:
        drawn.save(path, quality=_QUALITY)
    else:
        drawn.save(path)
    return f"./{link}"


def _whole(canvas: Image.Image, annotated: Annotated) -> Image.Image:
    draw_marks(canvas, annotated.boxes, annotated.points)
    answers = (f"{question} {answer}" if question else answer for question, answer in annotated.answers)
    texts = [*annotated.captions, *answers]
    return draw_texts(canvas, texts) if texts else canvas
