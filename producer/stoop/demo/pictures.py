"""Pictures of coloured shapes with known contents, drawn from a seed."""

import io
from dataclasses import dataclass
from random import Random

from PIL import Image, ImageDraw

__all__ = ["Picture", "Shape", "draw_pictures"]

_COLOURS = {"red": "#d62626", "green": "#26a044", "blue": "#265cd8", "yellow": "#f8d830", "purple": "#923ab6"}
_KINDS = ("circle", "square", "triangle")
# wide, square and tall, from one crop to many
_SIZES = ((378, 378), (640, 480), (480, 640), (850, 600))
_COLUMNS, _ROWS = 3, 2


@dataclass(frozen=True, slots=True)
class Shape:
    """One thing in a picture; its box is in pixels."""

    colour: str
    kind: str
    box: tuple[float, float, float, float]

    @property
    def name(self) -> str:
        """Its colour and kind, such as "red circle"."""
        return f"{self.colour} {self.kind}"


@dataclass(frozen=True, slots=True)
class Picture:
    """An image file, its (width, height) in pixels, and its shapes."""

    name: str
    encoded: bytes
    size: tuple[int, int]
    shapes: tuple[Shape, ...]

    def count(self, name: str) -> int:
        """Return the number of shapes with this name."""
        return sum(shape.name == name for shape in self.shapes)


def draw_pictures(count: int, seed: int) -> list[Picture]:
    """Draw `count` pictures. The same seed draws the same pictures."""
    random = Random(seed)
    return [_draw(f"shapes-{number}", random, _SIZES[number % len(_SIZES)]) for number in range(1, count + 1)]


def _draw(name: str, random: Random, size: tuple[int, int]) -> Picture:
    canvas = Image.new("RGB", size, "#f4f1ea")
    pen = ImageDraw.Draw(canvas)
    cells = random.sample(range(_COLUMNS * _ROWS), random.randint(2, 4))
    shapes = tuple(_place(random, cell, size) for cell in cells)
    for shape in shapes:
        _paint(pen, shape)
    written = io.BytesIO()
    canvas.save(written, "PNG")
    return Picture(name, written.getvalue(), size, shapes)


def _place(random: Random, cell: int, size: tuple[int, int]) -> Shape:
    """Place a shape within its cell of the grid, so that no two shapes overlap."""
    row, column = divmod(cell, _COLUMNS)
    width, height = size[0] / _COLUMNS, size[1] / _ROWS
    side = min(width, height) * random.uniform(0.5, 0.85)
    left = column * width + random.uniform(0, width - side)
    top = row * height + random.uniform(0, height - side)
    return Shape(random.choice(list(_COLOURS)), random.choice(_KINDS), (left, top, left + side, top + side))


def _paint(pen: ImageDraw.ImageDraw, shape: Shape) -> None:
    left, top, right, bottom = shape.box
    colour = _COLOURS[shape.colour]
    if shape.kind == "circle":
        pen.ellipse(shape.box, fill=colour)
    elif shape.kind == "square":
        pen.rectangle(shape.box, fill=colour)
    else:
        pen.polygon([((left + right) / 2, top), (right, bottom), (left, bottom)], fill=colour)
