"""Draws the losses of a training over its steps.

python -m deploy.demo_model.curve run/progress.json deploy/demo_model/training/curve.png
"""

import json
import sys
from collections.abc import Sequence
from math import log10
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw

__all__ = ["draw_curve"]

_SIZE, _MARGIN = (900, 480), 60
_LOSSES = {
    "say": ("words and stops", (214, 38, 38)),
    "at": ("coordinates", (38, 92, 216)),
    "size": ("sizes", (38, 160, 68)),
    "image": ("image embeddings, asked directly", (146, 58, 182)),
}
_LEAST, _MOST = 1e-3, 10.0


def draw_curve(log: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw the losses over the steps, on a logarithmic scale, and save the picture."""
    points = [(entry["step"], entry["losses"]) for entry in log if "losses" in entry]
    last = max(step for step, _ in points)
    canvas = Image.new("RGB", _SIZE, "white")
    pen = ImageDraw.Draw(canvas)
    width, height = _SIZE[0] - 2 * _MARGIN, _SIZE[1] - 2 * _MARGIN

    def place(step: float, loss: float) -> tuple[float, float]:
        share = (log10(max(_LEAST, min(_MOST, loss))) - log10(_LEAST)) / (log10(_MOST) - log10(_LEAST))
        return _MARGIN + width * step / last, _MARGIN + height * (1 - share)

    for power in range(-3, 2):
        pen.line([place(0, 10.0**power), place(last, 10.0**power)], fill=(220, 220, 220))
        pen.text((8, place(0, 10.0**power)[1] - 6), f"{10.0**power:g}", fill="black")
    for part in range(5):
        step = round(last * part / 4)
        pen.text((place(step, _LEAST)[0] - 12, _SIZE[1] - _MARGIN + 8), str(step), fill="black")
    pen.text((_SIZE[0] // 2 - 60, _SIZE[1] - 24), "steps of 80 scenes", fill="black")
    for row, (name, (label, colour)) in enumerate(_LOSSES.items()):
        pen.line([place(step, losses[name]) for step, losses in points], fill=colour, width=2)
        pen.text((_MARGIN + 12, _SIZE[1] - _MARGIN - 76 + 16 * row), label, fill=colour)
    canvas.save(path)


if __name__ == "__main__":
    draw_curve(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["log"], Path(sys.argv[2]))
