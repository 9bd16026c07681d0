import io
import json
from pathlib import Path

import pytest

from stoop.bulk.output.line import Line, pack_line
from stoop.bulk.output.recovery import ERRORS, shard_name
from stoop.errors import ConfigError
from stoop.export.rows import BadLine, Row, read_rows
from stoop_schemas.failure import Failure, FailureCode
from stoop_schemas.skill import Box, Output
from tests.export.truth import failed, line


def rows(source: Path | str) -> list[Row | BadLine]:
    return list(read_rows(str(source)))


def put(path: Path, *lines: object) -> None:
    path.write_text("".join(json.dumps(each) + "\n" for each in lines))


def test_a_bulk_folder_is_its_shards_and_its_failures(tmp_path: Path) -> None:
    put(tmp_path / "results-00001.jsonl", line("b.png", "caption", caption="b"))
    put(tmp_path / "results-00000.jsonl", line("a.png", "caption", caption="a"))
    put(tmp_path / "errors.jsonl", failed("c.png"))
    put(tmp_path / "other.jsonl", {"not": "ours"})
    found = rows(tmp_path)
    assert [row.image for row in found if isinstance(row, Row)] == ["a.png", "b.png", "c.png"]
    assert [row.ending for row in found if isinstance(row, Row)] == ["completed", "completed", "failed"]


def test_failures_that_were_tried_again_are_not_results(tmp_path: Path) -> None:
    put(tmp_path / "errors.jsonl", failed("a.png"))
    put(tmp_path / "errors.retried-0.jsonl", failed("b.png"))
    assert [row.image for row in rows(tmp_path) if isinstance(row, Row)] == ["a.png"]


def test_lines_of_a_bulk_run_are_rows(tmp_path: Path) -> None:
    line = Line(
        row="a.png", id="a.png", image="a.png", object="cat", output=Output(objects=[Box(0, 0, 1, 1)]), job="1-0"
    )
    lost = Line(row="b.png", id="b.png", image="b.png", failure=Failure.of(FailureCode.IMAGE_NOT_FOUND, "gone"))
    (tmp_path / shard_name(0)).write_bytes(pack_line(line))
    (tmp_path / ERRORS).write_bytes(pack_line(lost))
    first, second = rows(tmp_path)
    assert isinstance(first, Row)
    assert (first.label, first.address, first.output) == ("cat", "a.png", line.output)
    assert isinstance(second, Row)
    assert (second.ending, second.failure) == ("failed", lost.failure)


def test_another_folder_is_all_its_lines(tmp_path: Path) -> None:
    put(tmp_path / "mine.jsonl", line("a.png", "caption", caption="a"))
    assert len(rows(tmp_path)) == 1


def test_results_of_the_wire_are_rows(tmp_path: Path) -> None:
    golden = Path(__file__).parents[1] / "schemas" / "golden" / "both"
    for path in sorted(golden.glob("result-*.json")):
        (tmp_path / "r.jsonl").write_bytes(path.read_bytes() + b"\n")
        [row] = rows(tmp_path / "r.jsonl")
        assert isinstance(row, Row)
        assert row.ending == json.loads(path.read_bytes())["status"]


def test_standard_input_is_a_source(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = json.dumps(line("a.png", "caption", caption="a")).encode()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(packed + b"\n\n" + packed)))
    assert len(rows("-")) == 2


@pytest.mark.parametrize(
    "packed",
    [b'{"torn', b"[]", b"\xff\xfe", b'{"output": {"objects": 5}}', b"{}", b"[" * 100_000, b'{"image": "\\ud800"}'],
)
def test_a_line_that_is_not_a_result_is_reported_with_its_place(tmp_path: Path, packed: bytes) -> None:
    good = json.dumps(line("a.png", "caption", caption="a")).encode()
    (tmp_path / "r.jsonl").write_bytes(good + b"\n" + packed + b"\n" + good)
    first, bad, last = rows(tmp_path / "r.jsonl")
    assert isinstance(first, Row)
    assert isinstance(bad, BadLine)
    assert bad.place == "r.jsonl:2"
    assert isinstance(last, Row)


@pytest.mark.parametrize("name", ["absent", "empty"])
def test_a_source_without_results_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match=r"there is no file|holds no results"):
        rows(tmp_path / name)


def test_the_label_is_the_requested_object_on_one_line() -> None:
    assert Row(object=" red\n\tcar ").label == "red car"
    assert Row(metadata={"object": "cat"}).label == "cat"
    assert Row(metadata={"label": "dog"}).label == "dog"
    assert Row(object="  ").label == "object"


def test_the_size_is_the_rows_or_its_metadatas() -> None:
    assert Row(width=30, height=20).size == (30, 20)
    assert Row(metadata={"width": 30, "height": 20}).size == (30, 20)
    assert Row(width=30, height=20, metadata={"width": 1, "height": 1}).size == (30, 20)
    for metadata in (
        {"width": 30},
        {"width": 0, "height": 20},
        {"width": 10**30, "height": True},
        {"width": "30", "height": "20"},
        None,
    ):
        assert Row(metadata=metadata).size is None
