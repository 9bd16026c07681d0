"""YOLO's layout: a text file of boxes beside each image, a list of the images, and data.yaml with the classes.

A line is `class x_centre y_centre width height`, all but the class as fractions of the image. Only boxes have a place
here. An image without any has no text file, which means that nothing is on it. `val` names the training images too:
split `train.txt` to change that.
"""

import json
from pathlib import Path
from typing import Final

from producer.export.annotated import Annotated
from producer.export.copies import Copies
from producer.export.dataset import Dataset
from producer.export.naming import stem
from schemas.skill import Box

__all__ = ["write_yolo"]

_IMAGES: Final = "images/train"
_LIST: Final = "train.txt"


def write_yolo(dataset: Dataset, out: Path) -> None:
    """Write the layout into the folder; images are in it where there are any to copy."""
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
    # JSON's strings are YAML's too; without `path` all is relative to the folder that data.yaml is in
    (out / "data.yaml").write_text(f"train: {_LIST}\nval: {_LIST}\nnames:\n{names}", encoding="utf-8")


def _label_path(image: str) -> str:
    """Return where readers look for the boxes of an image: the last `images` of its path says `labels` instead."""
    before, _, after = image.rpartition("/images/")
    return f"{before}/labels/{stem(after)}.txt"


def _write_boxes(path: Path, annotated: Annotated, labels: dict[str, int]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = (f"{labels[label]} {_centred(box)}\n" for label, box in annotated.boxes)
    path.write_text("".join(lines), encoding="ascii")


def _centred(box: Box) -> str:
    values = ((box.x_min + box.x_max) / 2, (box.y_min + box.y_max) / 2, box.x_max - box.x_min, box.y_max - box.y_min)
    return " ".join(f"{value:.6f}" for value in values)
