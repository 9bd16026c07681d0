"""An answer drawn on its image: boxes, points, or a strip of text below."""

import io
import textwrap
from collections.abc import Iterator
from itertools import cycle
from typing import TypeVar

from PIL import Image, ImageDraw, ImageFont, UnidentifiedImageError

from producer.errors import ImageUnreadable
from schemas.skill import Output

__all__ = ["COLOURS", "draw_output"]

_T = TypeVar("_T")
_Font = ImageFont.FreeTypeFont | ImageFont.ImageFont

COLOURS = ("#e6194b", "#3cb44b", "#4363d8", "#f58231", "#911eb4", "#008080", "#9a6324", "#f032e6")
"""Told apart on most photographs, and white text is readable on each."""


def draw_output(encoded: bytes, output: Output, label: str = "") -> Image.Image:
    """Return the image with the output drawn on it; `label` names what boxes and points are of.

    Boxes and points are numbered from 1, as in the tables. Raises `ImageUnreadable`.
    """
    canvas = _open(encoded)
    pen = ImageDraw.Draw(canvas)
    thickness = max(2, round(min(canvas.size) / 150))
    font = ImageFont.load_default(size=max(12.0, min(canvas.size) / 28))
    width, height = canvas.size
    for number, colour, box in _numbered(output.objects):
        corners = (box.x_min * width, box.y_min * height, box.x_max * width, box.y_max * height)
        # a model may answer with corners the wrong way round, which Pillow refuses
        left, right = sorted(corners[::2])
        top, bottom = sorted(corners[1::2])
        pen.rectangle((left, top, right, bottom), outline=colour, width=thickness)
        _tag(pen, (left, top), f"{label} {number}".strip(), colour, font)
    for number, colour, point in _numbered(output.points):
        centre = (point.x * width, point.y * height)
        pen.circle(centre, 3 * thickness, fill=colour, outline="white", width=max(1, thickness // 2))
        _tag(pen, (centre[0] + 4 * thickness, centre[1]), f"{label} {number}".strip(), colour, font)
    text = output.answer or output.caption
    return _with_strip(canvas, text, font) if text else canvas


def _open(encoded: bytes) -> Image.Image:
    try:
        with Image.open(io.BytesIO(encoded)) as opened:
            return opened.convert("RGB")
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError) as error:
        raise ImageUnreadable(f"cannot draw on the image: {error}") from error


def _numbered(values: list[_T] | None) -> Iterator[tuple[int, str, _T]]:
    for number, (colour, value) in enumerate(zip(cycle(COLOURS), values or (), strict=False), start=1):
        yield number, colour, value


def _tag(pen: ImageDraw.ImageDraw, place: tuple[float, float], text: str, colour: str, font: _Font) -> None:
    """Write white text on a plate of the colour, moved to lie within the image."""
    left, top, right, bottom = pen.textbbox((0, 0), text, font=font)
    width, height = right - left + 6, bottom - top + 6
    room_x, room_y = pen.im.size[0] - width, pen.im.size[1] - height
    x = min(max(place[0], 0), max(room_x, 0))
    y = min(max(place[1] - height, 0), max(room_y, 0))
    pen.rectangle((x, y, x + width, y + height), fill=colour)
    pen.text((x + 3 - left, y + 3 - top), text, fill="white", font=font)


def _with_strip(canvas: Image.Image, text: str, font: _Font) -> Image.Image:
    columns = max(12, int(canvas.width / font.getlength("n")))
    lines = "\n".join(textwrap.wrap(text, columns))
    _, _, _, bottom = ImageDraw.Draw(canvas).multiline_textbbox((0, 0), lines, font=font)
    whole = Image.new("RGB", (canvas.width, canvas.height + int(bottom) + 16), "white")
    whole.paste(canvas)
    ImageDraw.Draw(whole).multiline_text((8, canvas.height + 8), lines, fill="black", font=font)
    return whole
