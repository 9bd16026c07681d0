"""Results with the true contents of the demo's pictures, so that files made of them can be checked."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from stoop.config import ProducerConfig
from stoop.demo.pictures import Picture, draw_pictures
from stoop.export import FormatName, Report, export

__all__ = ["BUCKET", "Truth", "close", "exported", "failed", "line"]

BUCKET = "s3://photos/set"

PixelBox = tuple[float, float, float, float]


class Truth:
    """Pictures in a folder, and the file of results about them."""

    def __init__(self, folder: Path) -> None:
        self.pictures = draw_pictures(5, seed=3)
        self.images = folder / "images"
        self.results = folder / "results.jsonl"
        self.images.mkdir()
        for picture in self.pictures:
            (self.images / f"{picture.name}.png").write_bytes(picture.encoded)
        self.write(self.lines())

    def lines(self) -> list[dict[str, Any]]:
        """Every detect and point a row of its own, those of one picture far apart."""
        asked = [(picture, name) for picture in self.pictures for name in names(picture)]
        found = [
            line(address(picture), "detect", object=name, objects=_boxes(picture, name)) for picture, name in asked
        ]
        found += [line(address(picture), "caption", caption=f"{picture.name} of shapes") for picture in self.pictures]
        found += [line(address(picture), "query", question="how many?", answer="some") for picture in self.pictures]
        return found + [
            line(address(picture), "point", object=name, points=_points(picture, name)) for picture, name in asked
        ]

    def write(self, lines: Iterable[dict[str, Any]]) -> None:
        self.results.write_text("".join(json.dumps(each) + "\n" for each in lines))

    def boxes(self) -> dict[str, list[tuple[str, PixelBox]]]:
        """By file name: the labels, and (left, top, right, bottom) in pixels."""
        return {f"{p.name}.png": sorted((s.name, s.box) for s in p.shapes) for p in self.pictures}

    def points(self) -> dict[str, list[tuple[str, tuple[float, float]]]]:
        """By file name: the labels, and (x, y) in pixels."""
        return {name: [(label, centre(box)) for label, box in boxes] for name, boxes in self.boxes().items()}

    def sizes(self) -> dict[str, tuple[int, int]]:
        return {f"{picture.name}.png": picture.size for picture in self.pictures}


def names(picture: Picture) -> list[str]:
    return sorted({shape.name for shape in picture.shapes})


def address(picture: Picture) -> str:
    return f"{BUCKET}/{picture.name}.png"


def centre(box: PixelBox) -> tuple[float, float]:
    return (box[0] + box[2]) / 2, (box[1] + box[3]) / 2


def line(
    image: str | None, skill: str, *, object: str | None = None, question: str | None = None, **output: Any
) -> Any:
    """A line as a bulk run writes it."""
    fields = {"row": image, "id": image, "image": image, "skill": skill, "object": object, "question": question}
    return {name: value for name, value in fields.items() if value is not None} | {"output": output}


def failed(image: str, code: str = "image_not_found", message: str = "nothing is there") -> Any:
    failure = {"code": code, "message": message, "retryable": False}
    return {"row": image, "id": image, "image": image, "skill": "detect", "failure": failure}


def exported(source: Path, name: str, out: Path, *, images: Path | str | None = None) -> Report:
    where = None if images is None else str(images)
    return export([str(source)], FormatName(name), out, images=where, config=ProducerConfig())


def close(one: Sequence[float], other: Sequence[float], most: float = 0.5) -> bool:
    """Return whether all coordinates agree to half a pixel."""
    return len(one) == len(other) and all(abs(a - b) <= most for a, b in zip(one, other, strict=True))


def _boxes(picture: Picture, name: str) -> list[dict[str, float]]:
    width, height = picture.size
    corners = [shape.box for shape in picture.shapes if shape.name == name]
    return [
        {"x_min": left / width, "y_min": top / height, "x_max": right / width, "y_max": bottom / height}
        for left, top, right, bottom in corners
    ]


def _points(picture: Picture, name: str) -> list[dict[str, float]]:
    return [
        {"x": (box["x_min"] + box["x_max"]) / 2, "y": (box["y_min"] + box["y_max"]) / 2}
        for box in _boxes(picture, name)
    ]
