"""YOLO's layout: a text file of boxes beside each image, a list of the images, and data.yaml with the classes.

A line is `class x_centre y_centre width height`, all but the class as fractions of the image. The layout holds only
boxes. An image without boxes has no text file, which means that it shows no object. `val` names the training images
too: split `train.txt` to change that.
"""

import json
from pathlib import Path
from typing import Final

from stoop.export.formats.annotated import Annotated
from stoop.export.formats.copies import Copies
from stoop.export.formats.dataset import Dataset
from stoop.export.naming import stem
from stoop_schemas.skill import Box

__all__ = ["write_yolo"]

_IMAGES: Final = "images/train"
_LIST: Final = "train.txt"


def write_yolo(dataset: Dataset, out: Path) -> None:
    """Write the layout into the folder, with the images if there are any to copy."""
    out.mkdir()
    labels = {label: number for number, label in enumerate(dataset.labels("boxes"))}
    copies = Copies(dataset, out / _IMAGES)
    with (out / _LIST).open("w", encoding="utf-8") as listed:
        for annotated, _ in dataset.each(copies.place):
            name = f"./{_IMAGES}/{annotated.image.name}"
            listed.write(f"{name}\n")
            if annotated.boxes:
                _write_boxes(out / _label_path(name), annotated, labels)
            dataset.count(annotated, "boxes")
    names = "".join(f"  {number}: {json.dumps(label, ensure_ascii=False)}\n" for label, number in labels.items())
    # JSON strings are valid YAML; without `path`, all paths are relative to the folder of data.yaml
    (out / "data.yaml").write_text(f"train: {_LIST}\nval: {_LIST}\nnames:\n{names}", encoding="utf-8")


def _label_path(image: str) -> str:
    """Return the path at which readers look for an image's boxes: its last `images` becomes `labels`."""
    before, _, after = image.rpartition("/images/")
    return f"{before}/labels/{stem(after)}.txt"


def _write_boxes(path: Path, annotated: Annotated, labels: dict[str, int]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = (f"{labels[label]} {_centred(box)}\n" for label, box in annotated.boxes)
    path.write_text("".join(lines), encoding="ascii")


def _centred(box: Box) -> str:
    values = ((box.x_min + box.x_max) / 2, (box.y_min + box.y_max) / 2, box.x_max - box.x_min, box.y_max - box.y_min)
    return " ".join(f"{value:.6f}" for value in values)
