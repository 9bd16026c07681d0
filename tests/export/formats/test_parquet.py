import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.export.truth import BUCKET, Truth, exported, failed, line


def loaded(path: Path) -> list[dict[str, Any]]:
    return list(pq.read_table(path).to_pylist())


def test_a_row_is_a_result_in_the_order_of_the_file(truth: Truth, tmp_path: Path) -> None:
    report = exported(truth.results, "parquet", tmp_path / "r.parquet", images=truth.images)
    rows, lines = loaded(tmp_path / "r.parquet"), truth.lines()
    assert report.written["rows"] == len(rows) == len(lines)
    for row, result in zip(rows, lines, strict=True):
        assert (row["image"], row["skill"], row["object"]) == (result["image"], result["skill"], result.get("object"))
        assert {name: row[name] for name in result["output"]} == result["output"]
        assert (row["width"], row["height"]) == truth.sizes()[result["image"].rpartition("/")[2]]


def test_nothing_is_clamped(truth: Truth, tmp_path: Path) -> None:
    box = {"x_min": -0.5, "y_min": 0.5, "x_max": 1.5, "y_max": 0.25}
    truth.write([line(f"{BUCKET}/shapes-1.png", "detect", object="x", objects=[box])])
    exported(truth.results, "parquet", tmp_path / "r.parquet")
    [row] = loaded(tmp_path / "r.parquet")
    assert row["objects"] == [box]
    assert row["width"] is None, "no size was given, and no image was read"


def test_all_of_a_result_is_there(truth: Truth, tmp_path: Path) -> None:
    reasoning = {"text": "I see.", "grounding": [{"start_idx": 0, "end_idx": 1, "points": [[0.25, 0.5]]}]}
    record = {
        "id": "1-0",
        "status": "completed",
        "skill": "query",
        "output": {"answer": "two", "reasoning": reasoning},
        "finish_reason": "stop",
        "metrics": {"input_tokens": 7, "ttft_ms": 1.5},
        "attempt": 2,
        "worker": "w",
        "model": "m",
        "custom_id": "mine",
        "metadata": {"width": 30, "height": 20, "k": [1]},
    }
    truth.write([record])
    exported(truth.results, "parquet", tmp_path / "r.parquet")
    [row] = loaded(tmp_path / "r.parquet")
    plain = {name: record[name] for name in ("id", "skill", "finish_reason", "attempt", "worker", "model", "custom_id")}
    assert {name: row[name] for name in plain} == plain
    assert (row["answer"], row["reasoning"]) == ("two", reasoning)
    assert (row["metrics"]["input_tokens"], row["metrics"]["ttft_ms"]) == (7, 1.5)
    assert json.loads(row["metadata"]) == record["metadata"]
    assert (row["width"], row["height"]) == (30, 20)


def test_a_missing_image_costs_its_size_only(truth: Truth, tmp_path: Path) -> None:
    truth.write([line(f"{BUCKET}/gone.png", "caption", caption="x"), failed(f"{BUCKET}/gone.png")])
    report = exported(truth.results, "parquet", tmp_path / "r.parquet", images=truth.images)
    [row] = loaded(tmp_path / "r.parquet")
    assert (row["caption"], row["width"]) == ("x", None)
    assert (report.errors, dict(report.unfinished)) == (1, {"failed": 1})


def test_a_number_that_no_column_holds_is_listed(truth: Truth, tmp_path: Path) -> None:
    good, bad = (line(f"{BUCKET}/{n}.png", "caption", caption=n) for n in ("good", "bad"))
    truth.write([good, bad | {"metrics": {"input_tokens": 2**63}}, good])
    report = exported(truth.results, "parquet", tmp_path / "r.parquet")
    assert [row["caption"] for row in loaded(tmp_path / "r.parquet")] == ["good", "good"]
    assert report.errors == 1


def test_rows_are_written_in_groups(truth: Truth, tmp_path: Path) -> None:
    truth.write([line("s3://photos/a.png", "caption", caption="x")] * 20_000)
    exported(truth.results, "parquet", tmp_path / "r.parquet")
    read = pq.ParquetFile(tmp_path / "r.parquet")
    assert read.metadata.num_rows == 20_000
    assert read.metadata.num_row_groups > 1


def test_without_pyarrow_it_names_the_extra_to_install(
    truth: Truth, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(Exception, match=r"stoop\[export\]"):
        exported(truth.results, "parquet", tmp_path / "r.parquet")
