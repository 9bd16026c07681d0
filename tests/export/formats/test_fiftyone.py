import json
from pathlib import Path
from typing import Any

from stoop.demo.embedded import EmbeddedS3
from tests.export.truth import Truth, close, exported, line


def loaded(folder: Path, labels: str = "labels.json") -> dict[str, list[tuple[str, tuple[float, ...]]]]:
    """The result of FiftyOne's importer of `COCODetectionDataset`: by image file, [x, y, width, height] as fractions.

    `file_name` is an absolute path, or that of a file in `data/`.
    """
    read = json.loads((folder / labels).read_text(encoding="utf-8"))
    classes = {category["id"]: category["name"] for category in read["categories"]}
    images = {image["id"]: image for image in read["images"]}
    found: dict[str, list[tuple[str, tuple[float, ...]]]] = {
        str(located(folder, image["file_name"])): [] for image in images.values()
    }
    for annotation in read["annotations"]:
        image = images[annotation["image_id"]]
        box = fractions(annotation["bbox"], image)
        found[str(located(folder, image["file_name"]))].append((classes[annotation["category_id"]], box))
    return found


def located(folder: Path, file_name: str) -> Path:
    path = Path(file_name)
    if path.is_absolute():
        return path
    assert path.name == file_name, "the name of a file in data/"
    return folder / "data" / file_name


def fractions(bbox: list[float], image: dict[str, Any]) -> tuple[float, ...]:
    x, y, width, height = bbox
    return x / image["width"], y / image["height"], width / image["width"], height / image["height"]


def assert_true(found: dict[str, list[tuple[str, tuple[float, ...]]]], truth: Truth) -> None:
    assert len(found) == len(truth.pictures)
    for path, boxes in found.items():
        name = Path(path).name.rpartition("_")[2]
        assert Path(path).read_bytes() == (truth.images / name).read_bytes()
        width, height = truth.sizes()[name]
        back = sorted(
            (label, (x * width, y * height, (x + w) * width, (y + h) * height)) for label, (x, y, w, h) in boxes
        )
        assert [label for label, _ in back] == [label for label, _ in truth.boxes()[name]]
        assert all(close(one, other, 0.02) for (_, one), (_, other) in zip(back, truth.boxes()[name], strict=True))


def test_local_images_stay_where_they_are(truth: Truth, tmp_path: Path) -> None:
    exported(truth.results, "fiftyone", tmp_path / "fo", images=truth.images)
    found = loaded(tmp_path / "fo")
    assert_true(found, truth)
    assert {Path(path).parent for path in found} == {truth.images}
    assert list((tmp_path / "fo" / "data").iterdir()) == []


def test_stored_images_are_fetched(truth: Truth, tmp_path: Path, s3: EmbeddedS3, stored: str) -> None:
    exported(truth.results, "fiftyone", tmp_path / "fo", images="s3")
    assert_true(loaded(tmp_path / "fo"), truth)


def test_points_are_in_a_file_of_their_own(truth: Truth, tmp_path: Path) -> None:
    exported(truth.results, "fiftyone", tmp_path / "fo", images=truth.images)
    found = loaded(tmp_path / "fo", "keypoints.json")
    assert sum(map(len, found.values())) == sum(map(len, truth.points().values()))


def test_two_paths_that_read_alike_are_two_files(truth: Truth, tmp_path: Path) -> None:
    images = [f"data:image/png;base64,{b64(p.encoded)}" for p in truth.pictures[:2]]
    truth.write(line(image, "detect", object="x", objects=[]) for image in images)
    exported(truth.results, "fiftyone", tmp_path / "fo")
    assert sorted(Path(path).read_bytes() for path in loaded(tmp_path / "fo")) == sorted(
        picture.encoded for picture in truth.pictures[:2]
    )


def b64(encoded: bytes) -> str:
    import base64

    return base64.b64encode(encoded).decode()
