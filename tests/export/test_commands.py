import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from stoop.cli.app import app
from tests.export.truth import BUCKET, Truth, failed, line


def run(*arguments: str | Path) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, [str(each) for each in arguments])
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.stdout, done.stderr


def test_export_reports_the_written_and_left_out_rows(truth: Truth, tmp_path: Path) -> None:
    truth.write([*truth.lines(), failed(f"{BUCKET}/z.png"), line(None, "query", answer="x")])
    code, out, err = run("export", truth.results, "--format", "coco", "--images", truth.images, "--out", tmp_path / "o")
    assert (code, err) == (0, "")
    boxes = sum(map(len, truth.boxes().values()))
    assert f"5 images, {boxes} boxes, {boxes} points, 5 captions" in out
    assert "left out: 5 answers; the format has no place for them" in out
    assert "left out: 1 failed; they have no answer" in out
    assert "left out: 1 rows; they name no image" in out


def test_a_missing_image_is_exit_code_1(truth: Truth, tmp_path: Path) -> None:
    truth.write([*truth.lines(), line(f"{BUCKET}/gone\x1b[31m.png", "caption", caption="x")])
    code, out, err = run("export", truth.results, "--format", "coco", "--images", truth.images, "--out", tmp_path / "o")
    assert code == 1
    assert "5 images" in out
    assert "1 could not be used" in err
    assert "o.errors.jsonl" in err
    assert "\x1b" not in err


def test_json_has_the_counts(truth: Truth, tmp_path: Path) -> None:
    code, out, _ = run("export", truth.results, "--format", "yolo", "--out", tmp_path / "o", "--json")
    report = json.loads(out)
    assert code == 0
    assert (report["out"], report["written"]["images"], report["errors"]) == (str(tmp_path / "o"), 5, 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["absent", "--format", "coco", "--out", "o"], "there is no file or folder"),
        (["RESULTS", "--format", "coco", "--out", "o", "--images", "absent"], "no such folder"),
        (["RESULTS", "--format", "coco", "--out", "o"], "--images"),
        (["RESULTS", "--format", "cvat", "--out", "o"], ".xml"),
        (["RESULTS", "--format", "voc", "--out", "o"], "voc"),
    ],
)
def test_wrong_usage_is_exit_code_2_with_advice(
    truth: Truth, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(truth.images)
    code, out, err = run("export", *(str(truth.results) if each == "RESULTS" else each for each in arguments))
    assert (code, out) == (2, "")
    assert message in " ".join(err.split())
    assert sorted(path.suffix for path in truth.images.iterdir() if path.name != "o.errors.jsonl") == [".png"] * 5


def test_draw_makes_a_folder_with_a_sheet(truth: Truth, tmp_path: Path) -> None:
    code, out, _ = run("draw", truth.results, "--images", truth.images, "--out", tmp_path / "g")
    assert code == 0
    assert "5 images" in out
    assert (tmp_path / "g" / "index.html").is_file()


def test_drawing_nothing_is_exit_code_2_with_a_sheet_of_reasons(truth: Truth, tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    code, out, err = run("draw", truth.results, "--images", tmp_path / "none", "--out", tmp_path / "g")
    assert code == 2
    assert "nothing" in out
    assert "could not be used" in err
    assert (tmp_path / "g" / "index.html").is_file()


def test_draw_takes_one_image(truth: Truth, tmp_path: Path) -> None:
    image = truth.images / "shapes-1.png"
    assert run("draw", truth.results, "--image", image, "--out", tmp_path / "new" / "a.png")[0] == 0
    assert (tmp_path / "new" / "a.png").stat().st_size > 0
    for out, message in (("a.doc", ".png"), ("a.png", "")):
        code, _, err = run("draw", truth.results, "--image", "absent.png", "--out", tmp_path / out)
        assert code == 2
        assert message in err
