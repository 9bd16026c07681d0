"""The evaluation on charts: its measure, its rows, and a run that stops and resumes."""

import io
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from PIL import Image, ImageDraw

from benchmarks.accuracy.charts import answer_rows, main, report
from benchmarks.accuracy.charts_data import read_rows
from benchmarks.accuracy.relaxed import is_right
from stoop import AsyncClient
from stoop.config import ProducerConfig
from stoop.demo.embedded import EmbeddedS3, embedded_redis
from stoop.demo.worker_process import LANE, find_model, running_worker
from stoop_schemas.event import Event
from stoop_schemas.failure import Failure, FailureCode
from stoop_schemas.job import Job
from tests.producer.scripted import ScriptedTransport, answer, failing


@pytest.mark.parametrize(
    ("found", "expected", "right"),
    [
        ("104", "100", True),
        ("106", "100", False),
        ("1,050", "1000", True),
        ("42%", "0.42", True),
        ("42%", "42", False),
        ("-5", "-5.2", True),
        ("0", "0", True),
        ("0.01", "0", False),
        ("yes", "Yes", True),
        ("no", "Yes", False),
        ("[1, 2]", "[1.04, 2]", True),
        ("[1]", "[1, 2]", False),
        ("[red, blue]", "['Red', 'Blue']", True),
        ("nan", "nan", True),
        ("2019", "year", False),
    ],
)
def test_relaxed_accuracy(found: str, expected: str, right: bool) -> None:
    assert is_right(found, [expected]) is right
    assert is_right(found, ["something else", expected]) is right


def chart(bars: list[int]) -> bytes:
    image = Image.new("RGB", (120, 100), "white")
    for number, height in enumerate(bars):
        ImageDraw.Draw(image).rectangle((10 + 30 * number, 95 - height, 30 + 30 * number, 95), fill="blue")
    written = io.BytesIO()
    image.save(written, "PNG")
    return written.getvalue()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = [("How tall?", "a.png", ["10"]), ("Which?", "b.png", ["blue"]), ("Gone?", "gone.png", ["1"])]
    for name, bars in (("a.png", [10, 20]), ("b.png", [30])):
        (tmp_path / name).write_bytes(chart(bars))
    (tmp_path / "gone.png").write_bytes(chart([1]))
    lines = [json.dumps({"question": asked, "image": image, "answers": found}) for asked, image, found in rows]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines) + "\n")
    return tmp_path


def test_a_folder_and_a_parquet_file_give_the_same_questions(folder: Path, tmp_path: Path) -> None:
    rows = list(read_rows(folder))
    table = pyarrow.Table.from_pylist(
        [
            {"query": row.question, "image": {"bytes": row.image.read_bytes()}, "label": list(row.answers)}
            for row in rows
            if isinstance(row.image, Path)
        ]
    )
    pyarrow.parquet.write_table(table, tmp_path / "rows.parquet")
    again = list(read_rows(tmp_path / "rows.parquet"))
    assert [(row.id, row.question, row.answers) for row in again] == [
        (row.id, row.question, row.answers) for row in rows
    ]
    assert again[0].image == chart([10, 20])


def test_a_row_that_lacks_a_field_is_named(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"question": "Why?", "image": "a.png"}\n')
    with pytest.raises(ValueError, match="row 0 lacks"):
        list(read_rows(tmp_path))


@pytest.mark.parametrize("content", [None, b"no Parquet"])
def test_a_source_that_cannot_be_read_is_named(content: bytes | None, tmp_path: Path) -> None:
    source, out = tmp_path / "test.parquet", tmp_path / "out"
    if content is not None:
        source.write_bytes(content)
    with pytest.raises(SystemExit, match=r"test\.parquet cannot be read"):
        main([str(source), "--out", str(out)])
    assert not out.exists()


def script(job: Job) -> Iterable[Event]:
    if "Gone?" in (job.question or ""):
        return failing(Failure.of(FailureCode.IMAGE_UNDECODABLE, "no image"))(job)
    return answer(job)


async def test_a_second_run_repeats_only_the_failed_questions(
    folder: Path, s3: EmbeddedS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    (folder / "b.png").write_bytes(b"no picture")
    rows, out = list(read_rows(folder)), folder / "out"
    out.mkdir()
    for asked in (["How tall?", "Gone?"], ["Gone?"]):
        transport = ScriptedTransport(script)
        config = ProducerConfig(bucket=s3.bucket, s3_path_style=True)
        async with AsyncClient(config, transport=transport) as client:
            await answer_rows(client, rows, out, prompt="Say: ")
        assert sorted(job.question or "" for job in transport.submitted) == sorted(f"Say: {each}" for each in asked)
        assert all(job.settings.temperature == 0 for job in transport.submitted)
        with (out / "answers.jsonl").open("a") as file:
            file.write('{"id": "cut sh\n')  # a kill in the middle of a line
    last = {
        each["question"]: each for line in (out / "answers.jsonl").read_text().splitlines() if (each := whole(line))
    }
    assert {asked: each["error"] for asked, each in last.items()} == {
        "How tall?": None,
        "Which?": "ImageUnreadable",
        "Gone?": "image_undecodable",
    }


async def test_the_first_answer_after_a_line_cut_short_counts(
    folder: Path, s3: EmbeddedS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    (folder / "answers.jsonl").write_text('{"id": "cut sh')
    config = ProducerConfig(bucket=s3.bucket, s3_path_style=True)
    async with AsyncClient(config, transport=ScriptedTransport(script)) as client:
        await answer_rows(client, list(read_rows(folder))[:1], folder)
    assert [each["question"] for each in map(whole, (folder / "answers.jsonl").read_text().splitlines()) if each] == [
        "How tall?"
    ]


def whole(line: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(line)
    except ValueError:
        return {}
    return found


def test_the_demo_s_model_answers_through_the_queue(
    folder: Path, s3: EmbeddedS3, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path_factory.mktemp("queue")
    with embedded_redis(scratch / "redis") as redis, running_worker(scratch, find_model(None), redis, s3):
        for name, value in s3.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("STOOP_REDIS_URL", redis.url)
        monkeypatch.setenv("STOOP_BUCKET", s3.bucket)
        monkeypatch.setenv("STOOP_S3_PATH_STYLE", "true")
        monkeypatch.setenv("STOOP_LANE", LANE)
        main([str(folder), "--out", str(folder / "out"), "--prompt", ""])
    found = json.loads((folder / "out" / "report.json").read_text())
    assert (found["rows"], found["answered"], found["errors"]) == (3, 3, {})
    text = (folder / "out" / "report.md").read_text()
    assert text.startswith("| rows | answered | right | relaxed accuracy")
    (model,) = found["models"]
    assert found["models"] == {model: 3} and f"- 3 answered by `{model}`\n" in text


def test_the_report_counts_failures_by_kind() -> None:
    scored = [
        {"right": True, "model": "one", "error": None},
        {"right": False, "model": "two", "error": None},
        {"right": False, "error": "timeout"},
    ]
    found = report(scored)
    assert found["models"] == {"one": 1, "two": 1}
    assert (found["rows"], found["answered"], found["right"]) == (3, 2, 1)
    assert found["accuracy"] == pytest.approx(1 / 3) and found["accuracy_of_answered"] == 0.5
    assert found["errors"] == {"timeout": 1}


def test_help_explains_how_to_resume(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "goes on where it stopped" in capsys.readouterr().out
