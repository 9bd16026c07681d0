"""The whole way: a real worker answers in bulk, and the exports are compared with the pictures' true contents."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from stoop.cli.app import app
from stoop.demo.embedded import EmbeddedRedis, EmbeddedS3
from stoop.demo.pictures import Picture, draw_pictures
from stoop.demo.worker_process import LANE, find_model, running_worker

pytest.importorskip("torch")

Box = tuple[float, float, float, float]
PREFIX = "export-demo"


def stoop(*arguments: str | Path) -> str:
    done = CliRunner().invoke(app, [str(each) for each in arguments])
    assert done.exit_code == 0, done.output
    return done.stdout


def overlap(one: Box, other: Box) -> float:
    across = min(one[2], other[2]) - max(one[0], other[0])
    along = min(one[3], other[3]) - max(one[1], other[1])
    both = max(across, 0) * max(along, 0)
    areas = sum((right - left) * (bottom - top) for left, top, right, bottom in (one, other))
    return both / (areas - both)


@pytest.fixture
def pictures(s3: EmbeddedS3) -> list[Picture]:
    drawn = draw_pictures(2, seed=7)
    for picture in drawn:
        s3.client().put_object(Bucket=s3.bucket, Key=f"{PREFIX}/{picture.name}.png", Body=picture.encoded)
    return drawn


@pytest.fixture
def found(
    pictures: list[Picture],
    redis_server: EmbeddedRedis,
    redis_url: str,
    s3: EmbeddedS3,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Path:
    """The folder of a bulk run that asked for every shape in every picture."""
    for name, value in {
        **s3.environment,
        "STOOP_REDIS_URL": redis_url,
        "STOOP_S3_ENDPOINT": s3.endpoint,
        "STOOP_S3_REGION": s3.region,
        "STOOP_S3_PATH_STYLE": "1",
    }.items():
        monkeypatch.setenv(name, value)
    asked = [
        {"skill": "detect", "image": f"s3://{s3.bucket}/{PREFIX}/{picture.name}.png", "object": name}
        for picture in pictures
        for name in sorted({shape.name for shape in picture.shapes})
    ]
    (tmp_path / "asked.jsonl").write_text("".join(json.dumps(each) + "\n" for each in asked))
    with running_worker(tmp_path, find_model(None), redis_server, s3):
        stoop("bulk", tmp_path / "asked.jsonl", "--out", tmp_path / "found", "--lane", LANE)
    return tmp_path / "found"


def test_exported_boxes_are_where_the_shapes_are(found: Path, pictures: list[Picture], tmp_path: Path) -> None:
    stoop("export", found, "--format", "coco", "--images", "s3", "--out", tmp_path / "coco.json")
    coco: dict[str, Any] = json.loads((tmp_path / "coco.json").read_text())
    labels = {each["id"]: each["name"] for each in coco["categories"]}
    images = {each["id"]: each for each in coco["images"]}
    boxes: dict[str, list[tuple[str, Box]]] = defaultdict(list)
    for annotation in coco["annotations"]:
        x, y, width, height = annotation["bbox"]
        name = images[annotation["image_id"]]["file_name"]
        boxes[name].append((labels[annotation["category_id"]], (x, y, x + width, y + height)))
    assert {each["file_name"]: (each["width"], each["height"]) for each in images.values()} == {
        f"{PREFIX}/{picture.name}.png": picture.size for picture in pictures
    }
    shapes = [(f"{PREFIX}/{picture.name}.png", shape) for picture in pictures for shape in picture.shapes]
    right = sum(
        any(label == shape.name and overlap(box, shape.box) > 0.5 for label, box in boxes[name])
        for name, shape in shapes
    )
    assert right >= 0.8 * len(shapes), "the model is small, but no guesser"
    stoop("draw", found, "--images", "s3", "--out", tmp_path / "drawn")
    assert len(list((tmp_path / "drawn" / "drawn").rglob("*.png"))) == len(pictures)
