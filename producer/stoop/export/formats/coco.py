"""COCO's three annotation files: boxes, points and captions, in pixels from the top left corner.

Each point is a keypoint annotation of its own, in a category with the single keypoint `point`; its box lies on the
point and has no area. Every annotation names its image and category by integer id. Ids begin at 1, and categories are
in alphabetical order.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from stoop.errors import ConfigError
from stoop.export.formats.annotated import Annotated
from stoop.export.formats.dataset import Dataset
from stoop.export.formats.json_file import write_members
from stoop.export.gathered import ImageEntry
from stoop_schemas.skill import Box, Point

__all__ = ["FILES", "pixel_box", "write_coco", "write_files"]

FILES: Final = {"boxes": "instances.json", "points": "keypoints.json", "captions": "captions.json"}
"""The file of each kind. A kind that no job asked for has no file."""

_HEAD: Final = {"info": {"description": "Answers of a vision-language model"}, "licenses": ()}

_Annotations = Callable[[Annotated, dict[str, int]], Iterator[dict[str, Any]]]


def write_coco(dataset: Dataset, out: Path) -> None:
    """Write the files into a folder, or into the file `out` if it ends in `.json` and there is only one kind."""
    if out.suffix == ".json":
        kinds = _present(dataset, FILES)
        if len(kinds) > 1:
            raise ConfigError(f"these results hold {' and '.join(kinds)}: COCO has a file for each, so give a folder")
        write_files(dataset, {kinds[0]: out}, file_name=lambda image: image.name)
        return
    out.mkdir()
    write_files(dataset, {kind: out / name for kind, name in FILES.items()}, file_name=lambda image: image.name)


def write_files(dataset: Dataset, paths: Mapping[str, Path], *, file_name: Callable[[ImageEntry], str]) -> None:
    """Write a file for each kind that a job asked for."""
    present = _present(dataset, paths)
    for kind in present:
        with paths[kind].open("wb") as file:
            write_members(file, _HEAD, _members(dataset, kind, file_name, present if kind == present[0] else ()))


def pixel_box(box: Box, size: tuple[int, int]) -> list[float]:
    """Return [x, y, width, height] in pixels, to a hundredth."""
    left, top = round(box.x_min * size[0], 2), round(box.y_min * size[1], 2)
    right, bottom = round(box.x_max * size[0], 2), round(box.y_max * size[1], 2)
    return [left, top, round(right - left, 2), round(bottom - top, 2)]


def _present(dataset: Dataset, kinds: Iterable[str]) -> list[str]:
    return [kind for kind in kinds if kind in dataset.kinds] or ["boxes"]


def _labels(dataset: Dataset, kind: str) -> list[str]:
    return dataset.labels(kind) if kind in ("boxes", "points") else []


def _members(
    dataset: Dataset, kind: str, file_name: Callable[[ImageEntry], str], counted: Sequence[str]
) -> dict[str, Any]:
    labels = {label: number for number, label in enumerate(_labels(dataset, kind), start=1)}
    annotations: dict[str, _Annotations] = {"boxes": _boxes, "points": _points, "captions": _captions}
    members: dict[str, Any] = {
        "images": (_image(entry, file_name(entry)) for entry in dataset.gathered.images()),
        "annotations": _numbered(dataset, labels, annotations[kind], counted),
    }
    if kind != "captions":
        members["categories"] = (_category(number, label, kind) for label, number in labels.items())
    return members


def _image(entry: ImageEntry, file_name: str) -> dict[str, Any]:
    record = {"id": entry.number, "width": entry.width, "height": entry.height, "file_name": file_name}
    return record | {"coco_url": entry.address} if "://" in entry.address else record


def _category(number: int, label: str, kind: str) -> dict[str, Any]:
    category: dict[str, Any] = {"id": number, "name": label, "supercategory": ""}
    return category | {"keypoints": ["point"], "skeleton": []} if kind == "points" else category


def _numbered(
    dataset: Dataset, labels: dict[str, int], annotations: _Annotations, counted: Sequence[str]
) -> Iterator[dict[str, Any]]:
    number = 0
    for annotated in dataset.annotated():
        if counted:
            dataset.count(annotated, *counted)
        for annotation in annotations(annotated, labels):
            number += 1
            yield {"id": number, "image_id": annotated.image.number, **annotation}


def _boxes(annotated: Annotated, labels: dict[str, int]) -> Iterator[dict[str, Any]]:
    for label, box in annotated.boxes:
        bbox = pixel_box(box, _size(annotated))
        area = round(bbox[2] * bbox[3], 4)
        yield {"category_id": labels[label], "bbox": bbox, "area": area, "segmentation": [], "iscrowd": 0}


def _points(annotated: Annotated, labels: dict[str, int]) -> Iterator[dict[str, Any]]:
    for label, point in annotated.points:
        x, y = _place(point, _size(annotated))
        keypoint = {"keypoints": [x, y, 2], "num_keypoints": 1}
        yield {"category_id": labels[label], "bbox": [x, y, 0, 0], "area": 0, "iscrowd": 0, **keypoint}


def _captions(annotated: Annotated, labels: dict[str, int]) -> Iterator[dict[str, Any]]:
    return ({"caption": caption} for caption in annotated.captions)


def _place(point: Point, size: tuple[int, int]) -> tuple[float, float]:
    return round(point.x * size[0], 2), round(point.y * size[1], 2)


def _size(annotated: Annotated) -> tuple[int, int]:
    size = annotated.image.size
    assert size is not None, "images without a size were left out"
    return size
