"""One sheet with all pictures of the demo, each with all answers about it."""

from collections.abc import Sequence

from PIL import Image, ImageOps

from stoop.demo.board import Line
from stoop.demo.pictures import Picture
from stoop.draw import draw_output
from stoop_schemas.skill import Output

__all__ = ["draw_montage"]

_COLUMNS = 4
_TILE = (480, 480)
_GAP = 8


def draw_montage(lines: Sequence[Line]) -> Image.Image:
    """Return a sheet of the pictures with the boxes, points and caption of their jobs."""
    pictures = list({line.job.picture.name: line.job.picture for line in lines if line.job.picture}.values())
    rows = -(-len(pictures) // _COLUMNS)
    across, down = _TILE[0] + _GAP, _TILE[1] + _GAP
    sheet = Image.new("RGB", (_COLUMNS * across + _GAP, rows * down + _GAP), "#d0d0d0")
    for number, picture in enumerate(pictures):
        tile = ImageOps.pad(_draw(picture, lines), _TILE, color="white", centering=(0.5, 0.0))
        sheet.paste(tile, (_GAP + number % _COLUMNS * across, _GAP + number // _COLUMNS * down))
    return sheet


def _draw(picture: Picture, lines: Sequence[Line]) -> Image.Image:
    ours = [line for line in lines if line.job.picture is picture and line.result and line.result.output]
    outputs = [line.result.output for line in ours if line.result and line.result.output]
    merged = Output(
        caption=next((output.caption for output in outputs if output.caption), None),
        objects=next((output.objects for output in outputs if output.objects), None),
        points=next((output.points for output in outputs if output.points), None),
    )
    label = next((str(line.job.fields["object"]) for line in ours if "object" in line.job.fields), "")
    return draw_output(picture.encoded, merged, label)
