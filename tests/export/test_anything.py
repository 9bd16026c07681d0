"""An export of any file of results is right or refused, and writes only to its own place."""

import base64
import json
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pycocotools.coco import COCO

from stoop.config import ProducerConfig
from stoop.demo.pictures import draw_pictures
from stoop.draw.gallery import draw_gallery
from stoop.errors import ConfigError
from stoop.export.formats.registry import FORMATS, FormatName
from tests.export.truth import exported, failed, line

PICTURE = draw_pictures(1, seed=1)[0]
INLINE = f"data:image/png;base64,{base64.b64encode(PICTURE.encoded).decode()}"

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
ADDRESS = st.one_of(
    st.sampled_from([INLINE, "s3://photos/a.png", "s3://photos/a.png/b.png", "s3://other/a.png", "../a.png", "a", "."]),
    TEXT.filter(bool),
    st.builds("s3://photos/{}".format, TEXT),
    st.builds("https://example.org/{}".format, TEXT),
)
NUMBER = st.floats(allow_nan=False, allow_infinity=False)
BOX = st.fixed_dictionaries(dict.fromkeys(("x_min", "y_min", "x_max", "y_max"), NUMBER | st.floats(0, 1)))
POINT = st.fixed_dictionaries({"x": NUMBER, "y": NUMBER})
ROW = st.one_of(
    st.builds(
        lambda image, label, boxes: line(image, "detect", object=label, objects=boxes), ADDRESS, TEXT, st.lists(BOX)
    ),
    st.builds(lambda image, label, at: line(image, "point", object=label, points=at), ADDRESS, TEXT, st.lists(POINT)),
    st.builds(lambda image, caption: line(image, "caption", caption=caption), ADDRESS, TEXT),
    st.builds(lambda image, q, a: line(image, "query", question=q, answer=a), ADDRESS, TEXT, TEXT),
    st.builds(lambda image, message: failed(image, message=message), ADDRESS, TEXT),
)
SIZED = st.builds(lambda row: row | {"width": 30, "height": 20}, ROW)


def read_coco(out: Path) -> int:
    return max(len(COCO(str(path)).imgs) for path in out.glob("*.json"))


def read_yolo(out: Path) -> int:
    names = yaml.safe_load((out / "data.yaml").read_text(encoding="utf-8"))["names"] or {}
    for path in (out / "labels").rglob("*.txt"):
        for each in path.read_text().splitlines():
            assert int(each.split()[0]) in names
    return len((out / "train.txt").read_text(encoding="utf-8").split("\n")) - 1


def read_label_studio(out: Path) -> int:
    ElementTree.parse(out / "labeling.xml")
    return len(json.loads((out / "tasks.json").read_bytes()))


def read_cvat(out: Path) -> int:
    return len(ElementTree.parse(out).findall("image"))


def read_webdataset(out: Path) -> int:
    names = []
    for path in out.glob("*.tar"):
        with tarfile.open(path) as shard:
            names += shard.getnames()
    assert len(names) == len(set(names))
    return len(names) // 2


def read_parquet(out: Path) -> int:
    return int(pq.read_table(out).num_rows)


READERS: dict[str, Callable[[Path], int]] = {
    "coco": read_coco,
    "fiftyone": read_coco,
    "yolo": read_yolo,
    "label-studio": read_label_studio,
    "cvat": read_cvat,
    "webdataset": read_webdataset,
    "parquet": read_parquet,
}


def test_every_format_of_images_has_a_reader() -> None:
    assert set(READERS) == {name.value for name in (*FORMATS, FormatName.PARQUET)}


@pytest.mark.parametrize("name", READERS)
@settings(max_examples=25)
@given(rows=st.lists(SIZED | ROW, min_size=1, max_size=6))
def test_every_written_file_can_be_read(name: str, rows: list[dict[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "r.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        out = folder / {"cvat": "o.xml", "parquet": "o.parquet"}.get(name, "o")
        try:
            report = exported(folder / "r.jsonl", name, out)
        except ConfigError as error:
            assert "nothing" in str(error)
            assert not out.exists()
        else:
            assert READERS[name](out) == report.written["rows" if name == "parquet" else "images"]
        assert {path.name for path in folder.iterdir()} <= {"r.jsonl", out.name, f"{out.name}.errors.jsonl"}


@settings(max_examples=25)
@given(rows=st.lists(SIZED | ROW, min_size=1, max_size=6))
def test_a_contact_sheet_has_every_image_once(rows: list[dict[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "r.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        draw_gallery(str(folder / "r.jsonl"), folder / "g", images=None, config=ProducerConfig())
        sheet = (folder / "g" / "index.html").read_text(encoding="utf-8")
        assert sheet.count("<figure class=") == len({row["image"] for row in rows})
        assert {path.name for path in folder.iterdir()} <= {"r.jsonl", "g", "g.errors.jsonl"}
