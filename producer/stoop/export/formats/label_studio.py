"""Label Studio's tasks with predictions, and the matching labelling configuration.

Coordinates are percentages of the image. Boxes are `rectanglelabels`, points `keypointlabels`, captions and answers
`textarea`; an answer's question is its note. Each image is one task with one prediction.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote
from xml.sax.saxutils import quoteattr

from stoop.export.formats.annotated import Annotated
from stoop.export.formats.dataset import Dataset
from stoop.export.formats.json_file import write_list
from stoop.export.formats.xml_text import legal

__all__ = ["write_label_studio"]

_KINDS: Final = ("boxes", "points", "captions", "answers")
_POINT_WIDTH: Final = 0.5  # per cent of the image: the size at which Label Studio draws a point
_TAGS: Final = {"boxes": "RectangleLabels", "points": "KeyPointLabels"}
_CONTROLS: Final = {"boxes": "box", "points": "point", "captions": "caption", "answers": "answer"}
_TYPES: Final = {
    "boxes": "rectanglelabels",
    "points": "keypointlabels",
    "captions": "textarea",
    "answers": "textarea",
}


def write_label_studio(dataset: Dataset, out: Path) -> None:
    """Write `tasks.json` and `labeling.xml` into a folder, or only the tasks if `out` ends in `.json`."""
    tasks = out
    if out.suffix != ".json":
        out.mkdir()
        tasks = out / "tasks.json"
        (out / "labeling.xml").write_text(_configuration(dataset), encoding="utf-8")
    with tasks.open("wb") as file:
        write_list(file, _tasks(dataset))
        file.write(b"\n")


def _tasks(dataset: Dataset) -> Iterator[dict[str, Any]]:
    for annotated in dataset.annotated():
        results = [_result(annotated, number, *each) for number, each in enumerate(_values(annotated), start=1)]
        dataset.count(annotated, *_KINDS)
        yield {
            "data": {"image": _image(annotated), "name": annotated.image.name},
            "predictions": [{"model_version": annotated.model, "result": results}],
        }


def _image(annotated: Annotated) -> str:
    address = annotated.image.address
    if "://" in address or address.startswith("data:"):
        return address
    return f"/data/local-files/?d={quote(annotated.image.name)}"


def _result(annotated: Annotated, number: int, kind: str, value: dict[str, Any], note: str = "") -> dict[str, Any]:
    result: dict[str, Any] = {
        "id": f"{annotated.image.number}-{number}",
        "type": _TYPES[kind],
        "from_name": _CONTROLS[kind],
        "to_name": "image",
        "value": value,
    }
    if annotated.image.size and kind in _TAGS:
        width, height = annotated.image.size
        result |= {"original_width": width, "original_height": height, "image_rotation": 0}
    return result | {"meta": {"text": [note]}} if note else result


def _values(annotated: Annotated) -> Iterator[tuple[str, dict[str, Any]] | tuple[str, dict[str, Any], str]]:
    for label, box in annotated.boxes:
        sides = {"width": _percent(box.x_max - box.x_min), "height": _percent(box.y_max - box.y_min), "rotation": 0}
        yield "boxes", {"x": _percent(box.x_min), "y": _percent(box.y_min), **sides, "rectanglelabels": [label]}
    for label, point in annotated.points:
        place = {"x": _percent(point.x), "y": _percent(point.y), "width": _POINT_WIDTH}
        yield "points", place | {"keypointlabels": [label]}
    for caption in annotated.captions:
        yield "captions", {"text": [caption]}
    for question, answer in annotated.answers:
        yield "answers", {"text": [answer]}, question


def _percent(value: float) -> float:
    return round(100 * value, 4)


def _configuration(dataset: Dataset) -> str:
    lines = ["<View>", '  <Image name="image" value="$image" zoom="true"/>']
    for kind, tag in _TAGS.items():
        labels = dataset.labels(kind)
        if labels:
            lines.append(f'  <{tag} name="{_CONTROLS[kind]}" toName="image">')
            lines += [f"    <Label value={quoteattr(legal(label))}/>" for label in labels]
            lines.append(f"  </{tag}>")
    for kind in ("captions", "answers"):
        if kind in dataset.kinds:
            lines.append(f'  <TextArea name="{_CONTROLS[kind]}" toName="image" editable="true" rows="2"/>')
    return "\n".join([*lines, "</View>", ""])
