import re
from pathlib import Path

import yaml

from tests.export.truth import BUCKET, Truth, close, exported, line

LINE = re.compile(r"\d+( (0|1)\.\d+){4}")


class Layout:
    """A YOLO data set as its trainers read it: from data.yaml to the list, to the images, to their text files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        read = yaml.safe_load((folder / "data.yaml").read_text(encoding="utf-8"))
        assert set(read) == {"train", "val", "names"}
        assert list(read["names"]) == list(range(len(read["names"]))), "classes are numbered from 0, without a gap"
        self.names: dict[int, str] = read["names"]
        listed = (folder / read["train"]).read_text(encoding="utf-8").splitlines()
        assert all(each.startswith("./images/") for each in listed), "relative to the list"
        self.images = [folder / each for each in listed]

    def boxes(self, image: Path) -> list[tuple[str, tuple[float, ...]]]:
        """The (label, (left, top, right, bottom)) of an image, as fractions."""
        before, _, after = str(image).rpartition("/images/")
        path = Path(f"{before}/labels/{after}").with_suffix(".txt")
        lines = path.read_text().splitlines() if path.exists() else []
        assert all(LINE.fullmatch(each) for each in lines)
        return sorted(self._read(each) for each in lines)

    def _read(self, text: str) -> tuple[str, tuple[float, ...]]:
        number, x, y, w, h = map(float, text.split())
        assert w > 0
        assert h > 0
        corners = (x - w / 2, y - h / 2, x + w / 2, y + h / 2)
        assert all(-1e-6 <= value <= 1 + 1e-6 for value in corners), "normalised, and within the image"
        return self.names[int(number)], corners


def test_boxes_come_back_where_they_were(truth: Truth, tmp_path: Path) -> None:
    report = exported(truth.results, "yolo", tmp_path / "yolo", images=truth.images)
    layout = Layout(tmp_path / "yolo")
    assert [image.name for image in layout.images] == list(truth.boxes())
    for image in layout.images:
        width, height = truth.sizes()[image.name]
        scale = (width, height, width, height)
        back = [(label, tuple(a * b for a, b in zip(box, scale, strict=True))) for label, box in layout.boxes(image)]
        boxes = truth.boxes()[image.name]
        assert [label for label, _ in back] == [label for label, _ in boxes]
        assert all(close(one, other, 0.02) for (_, one), (_, other) in zip(back, boxes, strict=True))
    assert report.left_out["points"] == report.written["boxes"] > 0, "which have no place here"


def test_images_are_in_it(truth: Truth, tmp_path: Path) -> None:
    exported(truth.results, "yolo", tmp_path / "yolo", images=truth.images)
    for image in Layout(tmp_path / "yolo").images:
        assert image.read_bytes() == (truth.images / image.name).read_bytes()


def test_without_images_only_their_names_are_in_it(truth: Truth, tmp_path: Path) -> None:
    exported(truth.results, "yolo", tmp_path / "yolo")
    layout = Layout(tmp_path / "yolo")
    assert [image.relative_to(tmp_path / "yolo").as_posix() for image in layout.images] == [
        f"images/train/set/{picture.name}.png" for picture in truth.pictures
    ]
    assert not any(image.exists() for image in layout.images)
    assert layout.boxes(layout.images[0])


def test_an_image_with_nothing_on_it_is_listed_and_has_no_text_file(truth: Truth, tmp_path: Path) -> None:
    truth.write([line(f"{BUCKET}/shapes-1.png", "detect", object="dog", objects=[])])
    exported(truth.results, "yolo", tmp_path / "yolo", images=truth.images)
    layout = Layout(tmp_path / "yolo")
    assert layout.names == {0: "dog"}
    assert [layout.boxes(image) for image in layout.images] == [[]]
    assert not (tmp_path / "yolo" / "labels").exists()


def test_images_that_differ_in_their_suffix_have_text_files_of_their_own(truth: Truth, tmp_path: Path) -> None:
    encoded = truth.pictures[0].encoded
    for name in ("a.png", "a.jpg"):
        (truth.images / name).write_bytes(encoded)
    box = {"x_min": 0.0, "y_min": 0.0, "x_max": 0.5, "y_max": 0.5}
    truth.write(line(f"{BUCKET}/{name}", "detect", object=name, objects=[box]) for name in ("a.png", "a.jpg"))
    exported(truth.results, "yolo", tmp_path / "yolo", images=truth.images)
    layout = Layout(tmp_path / "yolo")
    assert [[label for label, _ in layout.boxes(image)] for image in layout.images] == [["a.png"], ["a.jpg"]]


def test_a_folder_called_images_leads_no_reader_astray(truth: Truth, tmp_path: Path) -> None:
    deep = truth.images / "my" / "images"
    deep.mkdir(parents=True)
    (deep / "a.png").write_bytes(truth.pictures[0].encoded)
    box = {"x_min": 0.0, "y_min": 0.0, "x_max": 0.5, "y_max": 0.5}
    truth.write([line("s3://photos/my/images/a.png", "detect", object="dog", objects=[box])])
    exported(truth.results, "yolo", tmp_path / "yolo", images=truth.images)
    layout = Layout(tmp_path / "yolo")
    assert layout.images[0].is_file()
    assert layout.boxes(layout.images[0]) == [("dog", (0.0, 0.0, 0.5, 0.5))]


def test_any_label_is_a_class(truth: Truth, tmp_path: Path) -> None:
    labels = ["- a: [b", "#no", "'quoted'", 'a "b"', "null", "Füße 🦶", "\x00 bell\x07", "{}"]
    truth.write(line(f"{BUCKET}/shapes-1.png", "detect", object=label, objects=[]) for label in labels)
    exported(truth.results, "yolo", tmp_path / "yolo", images=truth.images)
    wanted = sorted([*labels[:6], "bell", "{}"])
    assert list(Layout(tmp_path / "yolo").names.values()) == wanted
