"""One image of a contact sheet as HTML: a thumbnail with its marks, and the texts beside it.

Any text may come from a stranger. It is escaped here, and no other module puts text into a page.
"""

import base64
import io
from collections.abc import Iterator
from html import escape
from typing import Final
from urllib.parse import quote

from PIL import Image

from stoop.export.formats.annotated import Annotated

__all__ = ["THUMBNAIL", "tile_html"]

THUMBNAIL: Final = (480, 480)
"""The most pixels of a thumbnail: twice the size on the page, for fine screens."""

_QUALITY: Final = 78
_TEXT_LETTERS: Final = 2000
_ALT_LETTERS: Final = 200


def tile_html(annotated: Annotated, canvas: Image.Image | None, *, problem: str, link: str) -> str:
    """Return the tile. `canvas` already has the marks; it is None if there is no image, and `problem` has the reason.

    `link` is the path of the drawing below the page's folder, or empty.
    """
    failed = [row for row in annotated.rows if not row.completed]
    answered = len(failed) < len(annotated.rows)
    found = bool(annotated.boxes or annotated.points)
    states = {"failed": failed or problem, "ok": answered, "with": found, "without": answered and not found}
    state = " ".join(name for name, holds in states.items() if holds)
    name = annotated.image.name
    paragraphs = "".join(_paragraphs(annotated, problem))
    return (
        f'<figure class="{state}">{_picture(canvas, name, link)}'
        f'<figcaption><h2 title="{_text(name)}">{_text(name)}</h2>{paragraphs}</figcaption></figure>\n'
    )


def _picture(canvas: Image.Image | None, name: str, link: str) -> str:
    if canvas is None:
        return '<div class="none">no image</div>'
    shown = f'<img loading="lazy" alt="{_text(name[:_ALT_LETTERS])}" src="{_inline(canvas)}">'
    return f'<a href="{escape(quote(link))}">{shown}</a>' if link else shown


def _inline(canvas: Image.Image) -> str:
    small = canvas.copy()
    small.thumbnail(THUMBNAIL)
    written = io.BytesIO()
    small.save(written, "JPEG", quality=_QUALITY)
    return f"data:image/jpeg;base64,{base64.b64encode(written.getvalue()).decode()}"


def _paragraphs(annotated: Annotated, problem: str) -> Iterator[str]:
    if problem:
        yield f'<p class="wrong">{_text(problem)}</p>'
    counts = annotated.labelled()
    if counts:
        chips = "".join(f"<li>{_text(label)} <b>{count}</b></li>" for label, count in counts.items())
        yield f"<ul>{chips}</ul>"
    for caption in annotated.captions:
        yield f"<p>{_text(caption)}</p>"
    for question, answer in annotated.answers:
        asked = f"<i>{_text(question)}</i> " if question else ""
        yield f"<p>{asked}{_text(answer)}</p>"
    for row in annotated.rows:
        if not row.completed:
            why = row.failure
            code, message = (why.code.value, why.message) if why else (row.ending, "")
            yield f'<p class="wrong"><b>{_text(code)}</b> {_text(message)}</p>'


def _text(text: str) -> str:
    cut = text if len(text) <= _TEXT_LETTERS else f"{text[:_TEXT_LETTERS]}…"
    return escape(cut.replace("\x00", "\ufffd"))
