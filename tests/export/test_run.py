import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from stoop.errors import ConfigError
from tests.export.truth import Truth, exported, failed

FOLDERS = ("coco", "yolo", "label-studio", "fiftyone", "webdataset")

# writes `count` lines in random order of their images, exports them, and prints the peak of the memory in KiB
MEASURED = """
import json, resource, sys
from pathlib import Path
from stoop.config import ProducerConfig
from stoop.export import FormatName, export

folder, count = Path(sys.argv[1]), int(sys.argv[2])
box = {"x_min": 0.1, "y_min": 0.2, "x_max": 0.5, "y_max": 0.6}
with (folder / "r.jsonl").open("w") as file:
    for number in range(count):
        image = number * 7919 % count // 2
        row = {"id": str(number), "image": f"s3://photos/set/{image:07}.jpg", "object": f"thing {number % 5}"}
        file.write(json.dumps({**row, "width": 640, "height": 480, "output": {"objects": [box]}}) + "\\n")
name, out = FormatName(sys.argv[3]), folder / sys.argv[4]
report = export([str(folder / "r.jsonl")], name, out, images=None, config=ProducerConfig())
assert report.written["rows" if name == "parquet" else "boxes"] == count
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_may_be_there_if_it_is_empty(truth: Truth, tmp_path: Path, name: str) -> None:
    (tmp_path / "out").mkdir()
    exported(truth.results, name, tmp_path / "out", images=truth.images)
    assert any((tmp_path / "out").iterdir())


@pytest.mark.parametrize("name", FOLDERS)
def test_nothing_is_overwritten(truth: Truth, tmp_path: Path, name: str) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").touch()
    with pytest.raises(ConfigError, match="already"):
        exported(truth.results, name, tmp_path / "out", images=truth.images)
    assert left(tmp_path / "out") == ["mine"]


@pytest.mark.parametrize(("name", "out"), [("coco", "o.json"), ("cvat", "o.xml"), ("parquet", "o.parquet")])
def test_no_file_is_overwritten(truth: Truth, tmp_path: Path, name: str, out: str) -> None:
    (tmp_path / out).write_text("mine")
    with pytest.raises(ConfigError, match="already"):
        exported(truth.results, name, tmp_path / out, images=truth.images)
    assert (tmp_path / out).read_text() == "mine"


@pytest.mark.parametrize(("name", "suffix"), [("cvat", ".xml"), ("parquet", ".parquet")])
def test_a_file_is_named_as_one(truth: Truth, tmp_path: Path, name: str, suffix: str) -> None:
    with pytest.raises(ConfigError, match=suffix):
        exported(truth.results, name, tmp_path / "out", images=truth.images)


@pytest.mark.parametrize("name", [*FOLDERS, "cvat", "parquet"])
def test_a_failed_export_leaves_no_files(truth: Truth, tmp_path: Path, name: str) -> None:
    out = tmp_path / "deep" / {"cvat": "o.xml", "parquet": "o.parquet"}.get(name, "out")
    truth.write([failed("s3://photos/set/a.png")])
    with pytest.raises(ConfigError, match=r"nothing to write: of 1 rows .* 1 have no answer"):
        exported(truth.results, name, out, images=truth.images)
    assert left(tmp_path / "deep") == []


def test_a_place_that_cannot_be_written_is_reported(truth: Truth, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot write"):
        exported(truth.results, "coco", tmp_path / "file" / "coco", images=truth.images)


def test_old_errors_are_gone(truth: Truth, tmp_path: Path) -> None:
    (tmp_path / "coco.errors.jsonl").write_text("of another time")
    exported(truth.results, "coco", tmp_path / "coco", images=truth.images)
    assert not (tmp_path / "coco.errors.jsonl").exists()


@pytest.fixture
def peak(tmp_path: Path) -> Callable[[str, str, int], int]:
    def measure(name: str, out: str, count: int) -> int:
        folder = tmp_path / str(count)
        folder.mkdir()
        command = [sys.executable, "-c", MEASURED, str(folder), str(count), name, out]
        return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    return measure


@pytest.mark.parametrize(("name", "out"), [("coco", "o"), ("label-studio", "o"), ("parquet", "o.parquet")])
def test_memory_does_not_grow_with_the_rows(peak: Callable[[str, str, int], int], name: str, out: str) -> None:
    few, many = peak(name, out, 5_000), peak(name, out, 30_000)
    assert many < 1.2 * few
