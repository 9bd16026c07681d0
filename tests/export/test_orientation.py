"""Images that their readers turn by EXIF: boxes and points are where the readers see the object."""

import io
import json
from pathlib import Path

import pytest
from PIL import Image, ImageDraw, ImageOps
from typer.testing import CliRunner

from stoop.cli.app import app
from stoop.draw import draw_output
from stoop.export.orientation import orient_box, orient_point, read_orientation
from stoop_schemas.skill import Box, Output, Point
from tests.export.formats.test_yolo import Layout
from tests.export.truth import exported, line

BOX = (0.1, 0.2, 0.3, 0.6)
"""Where the red box is in the pixels as they are stored."""

CENTRE = (0.2, 0.4)


def photo(orientation: int, image_format: str = "JPEG") -> bytes:
    image = Image.new("RGB", (400, 300), "white")
    ImageDraw.Draw(image).rectangle((40, 60, 119, 179), fill="red")
    exif = Image.Exif()
    exif[0x0112] = orientation
    written = io.BytesIO()
    image.save(written, image_format, exif=exif, quality=95)
    return written.getvalue()


def red_box(encoded: bytes) -> tuple[float, ...]:
    """Return where a reader that applies EXIF finds the red box, as fractions."""
    shown = ImageOps.exif_transpose(Image.open(io.BytesIO(encoded))).convert("RGB")
    mask = shown.split()[1].point(lambda green: 255 * (green < 128))
    left, top, right, bottom = mask.getbbox() or (0, 0, 0, 0)
    return left / shown.width, top / shown.height, right / shown.width, bottom / shown.height


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Results about a photo of every orientation, and the photos beside them."""
    (tmp_path / "photos").mkdir()
    lines = []
    for orientation in range(1, 9):
        (tmp_path / "photos" / f"{orientation}.jpg").write_bytes(photo(orientation))
        box = dict(zip(("x_min", "y_min", "x_max", "y_max"), BOX, strict=True))
        point = dict(zip("xy", CENTRE, strict=True))
        address = f"s3://b/{orientation}.jpg"
        lines.append(line(address, "detect", object="red", objects=[box]))
        lines.append(line(address, "point", object="red", points=[point]))
    (tmp_path / "results.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines))
    return tmp_path


@pytest.mark.parametrize("image_format", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_places_turn_with_the_image(orientation: int, image_format: str) -> None:
    encoded = photo(orientation, image_format)
    found = read_orientation(Image.open(io.BytesIO(encoded)))
    if image_format == "TIFF":
        assert found == 1, "Pillow turns these, for the worker too"
        return
    box = orient_box(Box(*BOX), found)
    assert (box.x_min, box.y_min, box.x_max, box.y_max) == pytest.approx(red_box(encoded), abs=0.02)
    point = orient_point(Point(*CENTRE), found)
    assert (point.x, point.y) == pytest.approx(((box.x_min + box.x_max) / 2, (box.y_min + box.y_max) / 2))


def test_coco_has_boxes_points_and_sizes_as_readers_see_them(photos: Path) -> None:
    report = exported(photos / "results.jsonl", "coco", photos / "coco", images=photos / "photos")
    assert report.turned == 7
    boxes = json.loads((photos / "coco" / "instances.json").read_text())
    points = json.loads((photos / "coco" / "keypoints.json").read_text())
    for image, annotation, point in zip(boxes["images"], boxes["annotations"], points["annotations"], strict=True):
        encoded = (photos / "photos" / image["file_name"]).read_bytes()
        width, height = ImageOps.exif_transpose(Image.open(io.BytesIO(encoded))).size
        assert (image["width"], image["height"]) == (width, height)
        left, top, wide, high = annotation["bbox"]
        shown = (left / width, top / height, (left + wide) / width, (top + high) / height)
        assert shown == pytest.approx(red_box(encoded), abs=0.02)
        x, y, _ = point["keypoints"]
        assert (x, y) == pytest.approx((left + wide / 2, top + high / 2), abs=0.02)


def test_yolo_has_them_too(photos: Path) -> None:
    exported(photos / "results.jsonl", "yolo", photos / "yolo", images=photos / "photos")
    layout = Layout(photos / "yolo")
    for image in layout.images:
        [(_, box)] = layout.boxes(image)
        assert box == pytest.approx(red_box(image.read_bytes()), abs=0.02)


def test_parquet_keeps_the_models_coordinates_and_the_orientation(photos: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    exported(photos / "results.jsonl", "parquet", photos / "p.parquet", images=photos / "photos")
    rows = pq.read_table(photos / "p.parquet").to_pylist()
    assert [row["orientation"] for row in rows[::2]] == list(range(1, 9))
    assert {(row["width"], row["height"]) for row in rows} == {(400, 300)}


def test_the_command_reports_how_many_images_were_turned(photos: Path) -> None:
    arguments = ["export", str(photos / "results.jsonl"), "--format", "coco", "--images", str(photos / "photos")]
    output = CliRunner().invoke(app, [*arguments, "--out", str(photos / "out")]).stdout
    assert "turned: 7 images by their EXIF orientation" in output
    as_json = CliRunner().invoke(app, [*arguments, "--out", str(photos / "again"), "--json"]).stdout
    assert json.loads(as_json)["turned"] == 7


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_drawing_is_turned_with_its_boxes(orientation: int) -> None:
    drawn = draw_output(photo(orientation), Output(objects=[Box(*BOX)]))
    shown = ImageOps.exif_transpose(Image.open(io.BytesIO(photo(orientation))))
    assert drawn.size == shown.size
    box = orient_box(Box(*BOX), orientation)
    on_edge = drawn.getpixel((round(box.x_min * drawn.width), round((box.y_min + box.y_max) / 2 * drawn.height)))
    assert isinstance(on_edge, tuple)
    assert on_edge[1] < 80, "the outline, of the first colour"
