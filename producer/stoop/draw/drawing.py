"""An answer drawn on its image: boxes, points, or a strip of text below."""

import io
import re
import textwrap
from collections import Counter
from collections.abc import Sequence
from itertools import cycle
from typing import Final, TypeAlias, TypeVar

from PIL import Image, ImageDraw, ImageFont, UnidentifiedImageError

from stoop.errors import ImageUnreadable
from stoop.export.orientation import orient_box, orient_image, orient_point, read_orientation
from stoop_schemas.skill import Box, Output, Point, SpatialRef

__all__ = ["COLOURS", "draw_marks", "draw_output", "draw_texts", "open_canvas"]

_Font = ImageFont.FreeTypeFont | ImageFont.ImageFont
_T = TypeVar("_T")
_Pen: TypeAlias = ImageDraw.ImageDraw

COLOURS = ("#e6194b", "#3cb44b", "#4363d8", "#f58231", "#911eb4", "#008080", "#9a6324", "#f032e6")
"""Easy to distinguish on most photographs; white text is readable on each."""

_LABEL_LETTERS: Final = 40
_TEXT_LETTERS: Final = 4000
_STRIP_WIDTH: Final = 200  # pixels; text needs that many, however small the image is
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def draw_output(
    encoded: bytes, output: Output, label: str = "", refs: Sequence[SpatialRef] | None = None
) -> Image.Image:
    """Return the image with the output drawn on it; `label` names the objects that are marked.

    Boxes and points are numbered from 1, as in the tables. A gaze is a line from the eye, the point in `refs`. Raises
    `ImageUnreadable`.
    """
    canvas, orientation = open_canvas(encoded)
    boxes = [(label, orient_box(box, orientation)) for box in output.objects or ()]
    draw_marks(canvas, boxes, [(label, orient_point(point, orientation)) for point in output.points or ()])
    if output.gaze:
        eyes = [orient_point(Point(*ref), orientation) for ref in refs or () if len(ref) == 2]
        _draw_gaze(canvas, orient_point(output.gaze, orientation), eyes)
    text = output.text
    return draw_texts(canvas, [text]) if text else canvas


def open_canvas(encoded: bytes) -> tuple[Image.Image, int]:
    """Return the image in RGB as viewers show it, to be drawn on, and the EXIF orientation by which it was turned.

    Raises `ImageUnreadable`.
    """
    try:
        with Image.open(io.BytesIO(encoded)) as opened:
            orientation = read_orientation(opened)
            return orient_image(opened.convert("RGB"), orientation), orientation
    except UnidentifiedImageError as error:
        # Pillow names the object in memory
        raise ImageUnreadable("cannot draw on the image: its bytes are not a readable image") from error
    except (Image.DecompressionBombError, OSError, ValueError, SyntaxError) as error:
        raise ImageUnreadable(f"cannot draw on the image: {error}") from error


def draw_marks(canvas: Image.Image, boxes: Sequence[tuple[str, Box]], points: Sequence[tuple[str, Point]]) -> None:
    """Draw labelled boxes and points on the image itself; those of each label are numbered from 1.

    With one label each mark has its own colour; with several, each label has one.
    """
    pen = ImageDraw.Draw(canvas)
    thickness = max(2, round(min(canvas.size) / 150))
    font = _font(canvas)
    width, height = canvas.size
    for colour, name, box in _named(boxes):
        corners = (box.x_min * width, box.y_min * height, box.x_max * width, box.y_max * height)
        # a model may answer with corners the wrong way round, which Pillow refuses
        left, right = sorted(corners[::2])
        top, bottom = sorted(corners[1::2])
        pen.rectangle((left, top, right, bottom), outline=colour, width=thickness)
        _tag(pen, (left, top), name, colour, font)
    for colour, name, point in _named(points):
        centre = (point.x * width, point.y * height)
        pen.circle(centre, 3 * thickness, fill=colour, outline="white", width=max(1, thickness // 2))
        _tag(pen, (centre[0] + 4 * thickness, centre[1]), name, colour, font)


def _draw_gaze(canvas: Image.Image, target: Point, eyes: Sequence[Point]) -> None:
    pen = ImageDraw.Draw(canvas)
    width, height = canvas.size
    for eye in eyes:
        line = (eye.x * width, eye.y * height, target.x * width, target.y * height)
        pen.line(line, fill=COLOURS[0], width=max(2, round(min(canvas.size) / 150)))
    draw_marks(canvas, [], [("gaze", target)])


def draw_texts(canvas: Image.Image, texts: Sequence[str]) -> Image.Image:
    """Return the image above a white strip with the texts, each a paragraph of at most 4,000 letters."""
    width = max(canvas.width, _STRIP_WIDTH)
    font = _font(canvas)
    columns = max(12, int(width / font.getlength("n")))
    paragraphs = ("\n".join(textwrap.wrap(_shortened(text, _TEXT_LETTERS), columns)) for text in texts)
    lines = "\n".join(paragraphs)
    _, _, _, bottom = ImageDraw.Draw(canvas).multiline_textbbox((0, 0), lines, font=font)
    whole = Image.new("RGB", (width, canvas.height + int(bottom) + 16), "white")
    whole.paste(canvas)
    ImageDraw.Draw(whole).multiline_text((8, canvas.height + 8), lines, fill="black", font=font)
    return whole


def _font(canvas: Image.Image) -> _Font:
    return ImageFont.load_default(size=max(12.0, min(canvas.size) / 28))


def _named(marks: Sequence[tuple[str, _T]]) -> list[tuple[str, str, _T]]:
    """Give each mark its colour and its name: the label, and its number among those of the label."""
    colours = dict(zip(dict.fromkeys(label for label, _ in marks), cycle(COLOURS), strict=False))
    seen: Counter[str] = Counter()
    named = []
    for label, mark in marks:
        seen[label] += 1
        colour = colours[label] if len(colours) > 1 else COLOURS[(seen[label] - 1) % len(COLOURS)]
        name = f"{_shortened(label, _LABEL_LETTERS)} {seen[label]}".strip()
        named.append((colour, name, mark))
    return named


def _shortened(text: str, letters: int) -> str:
    text = _CONTROL.sub(" ", text).strip()
    return text if len(text) <= letters else f"{text[: letters - 3]}..."


def _tag(pen: _Pen, place: tuple[float, float], text: str, colour: str, font: _Font) -> None:
    """Write white text on a plate of the colour, moved to lie within the image."""
    left, top, right, bottom = pen.textbbox((0, 0), text, font=font)
    width, height = right - left + 6, bottom - top + 6
    room_x, room_y = pen.im.size[0] - width, pen.im.size[1] - height
    x = min(max(place[0], 0), max(room_x, 0))
    y = min(max(place[1] - height, 0), max(room_y, 0))
    pen.rectangle((x, y, x + width, y + height), fill=colour)
    pen.text((x + 3 - left, y + 3 - top), text, fill="white", font=font)
