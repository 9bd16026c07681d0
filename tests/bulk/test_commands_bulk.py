import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from stoop import AsyncClient
from stoop.cli.app import app
from stoop.config import ProducerConfig
from stoop.errors import QueueUnavailable
from stoop_schemas.failure import Failure, FailureCode
from stoop_schemas.job import Job
from tests.bulk.folder import lines, rows
from tests.producer.scripted import Script, ScriptedTransport, answer, failing

UNREADABLE = failing(Failure.of(FailureCode.IMAGE_UNDECODABLE, "the image is [bold]truncated[/bold]"))


class Terminal:
    """Runs `stoop bulk` in this process on a scripted queue."""

    def __init__(self, script: Script | None = answer) -> None:
        self.transport = ScriptedTransport(script)

    def run(self, *arguments: str | Path) -> tuple[int, str, str]:
        done = CliRunner().invoke(
            app,
            ["bulk", *map(str, arguments)],
            obj=lambda config: AsyncClient(config, transport=self.transport),
            env={"COLUMNS": "200"},
        )
        if done.exception and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done.exit_code, done.stdout, done.stderr


def some_fail(job: Job) -> object:
    return UNREADABLE(job) if "bad" in (job.image or "") else answer(job)


@pytest.fixture(autouse=True)
def unconfigured(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ProducerConfig.model_fields:
        monkeypatch.delenv(f"STOOP_{name.upper()}", raising=False)


def write_batch(folder: Path, images: Sequence[str]) -> Path:
    path = folder / "batch.jsonl"
    lines = ({"id": f"id-{n}", "image": f"s3://photos/{name}.jpg"} for n, name in enumerate(images))
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.fixture
def batch(tmp_path: Path) -> Path:
    return write_batch(tmp_path, ["a", "bad-1", "b", "bad-2", "c"])


def test_a_batch_is_answered_summed_up_and_done_only_once(tmp_path: Path, batch: Path) -> None:
    terminal, out = Terminal(some_fail), tmp_path / "out"
    arguments = (batch, "--skill", "detect", "--object", "cat", "--seed", "7", "--model", "moondream3", "--out", out)
    code, output, errors = terminal.run(*arguments)
    assert code == 0
    assert "5 images: 3 answered, 2 failed" in output
    assert "image_undecodable" in output
    assert "40.0%" in output
    assert "id-1: the image is [bold]truncated[/bold]" in output
    assert "5 of 5 (100%), 2 failed" in errors
    assert [line["id"] for line in lines(out, "results-*")] == ["id-0", "id-2", "id-4"]
    assert lines(out, "results-*")[0]["output"]["objects"][0]["x_min"] == 0.1
    asked = {(job.object, job.settings.seed, job.lane, job.model) for job in terminal.transport.submitted}
    assert asked == {("cat", 7, "bulk", "moondream3")}
    assert terminal.run(*arguments)[0] == 0
    assert len(terminal.transport.submitted) == 5
    summary = json.loads((out / "summary.json").read_text())
    assert (summary["completed"], summary["failed"], summary["finished"]) == (3, 2, True)
    assert summary["causes"][0]["example"]["image"] == "s3://photos/bad-1.jpg"


def test_the_summary_is_json_where_that_is_asked_for(tmp_path: Path, batch: Path) -> None:
    code, output, _ = Terminal(some_fail).run(batch, "--skill", "caption", "--out", tmp_path / "out", "--json")
    assert code == 0
    assert json.loads(output) == json.loads((tmp_path / "out" / "summary.json").read_text())


def test_several_objects_are_all_looked_for(tmp_path: Path, batch: Path) -> None:
    terminal, out, listed = Terminal(), tmp_path / "out", tmp_path / "classes.txt"
    listed.write_text("dog\n\n red car \ncat\n")
    asked = ("--skill", "detect", "--object", "cat", "--objects-from", listed, "--out", out)
    code, output, errors = terminal.run(batch, *asked)
    assert code == 0
    assert "15 rows: 15 answered" in output
    assert errors.startswith("0 of 15")
    assert Counter(job.object for job in terminal.transport.submitted) == {"cat": 5, "dog": 5, "red car": 5}
    assert {line["row"] for line in lines(out, "results-*") if line["id"] == "id-0"} == {
        "1 [cat]",
        "1 [dog]",
        "1 [red car]",
    }
    assert terminal.run(batch, *asked)[0] == 0
    assert len(terminal.transport.submitted) == 15, "each is done only once"
    code, _, errors = terminal.run(batch, "--skill", "detect", "--object", "cat", "--out", out)
    assert (code, "holds another run" in errors) == (2, True)


def test_several_questions_are_all_asked(tmp_path: Path, batch: Path) -> None:
    terminal, out = Terminal(), tmp_path / "out"
    asked = ("--skill", "query", "--question", "How many?", "--question", "Which colour?", "--out", out)
    assert terminal.run(batch, *asked, "--rows", "3")[0] == 0
    assert Counter(job.question for job in terminal.transport.submitted) == {"How many?": 3, "Which colour?": 3}
    code, _, errors = terminal.run(batch, *asked[:4], "--out", out)
    assert (code, "holds another run" in errors) == (2, True)


def test_one_export_has_the_boxes_of_all_objects(tmp_path: Path, batch: Path) -> None:
    together, apart = tmp_path / "together", [tmp_path / "cats", tmp_path / "dogs"]
    detect = ("--skill", "detect", "--object")
    Terminal().run(batch, *detect, "cat", "--object", "dog", "--out", together)
    for name, out in zip(("cat", "dog"), apart, strict=True):
        Terminal().run(batch, *detect, name, "--out", out)
    for sources in ([together], apart, [*apart, apart[0]]):
        coco = tmp_path / f"coco-{len(sources)}"
        for path in (source / "results-00000.jsonl" for source in sources):
            sized = [json.loads(line) | {"width": 40, "height": 30} for line in path.read_text().splitlines()]
            path.write_text("".join(json.dumps(each) + "\n" for each in sized))
        arguments = ["export", *map(str, sources), "--format", "coco", "--out", str(coco)]
        assert CliRunner().invoke(app, arguments).exit_code == 0
        written = json.loads((coco / "instances.json").read_text())
        assert [each["name"] for each in written["categories"]] == ["cat", "dog"]
        assert len(written["images"]) == 5
        assert Counter(each["category_id"] for each in written["annotations"]) == {1: 10, 2: 10}, (
            "two of each on each image"
        )


def test_only_the_first_images_are_asked_about_all_objects(tmp_path: Path, batch: Path) -> None:
    terminal = Terminal()
    objects = ("--object", "cat", "--object", "dog")
    code, output, _ = terminal.run(batch, "--skill", "detect", *objects, "--rows", "2", "--out", tmp_path / "out")
    assert (code, "4 rows: 4 answered" in output) == (0, True)


def test_retry_failed_runs_the_failed_rows_again(tmp_path: Path, batch: Path) -> None:
    out = tmp_path / "out"
    assert Terminal(some_fail).run(batch, "--skill", "caption", "--out", out)[0] == 0
    code, output, _ = Terminal(answer).run(batch, "--skill", "caption", "--out", out, "--retry-failed")
    assert code == 0
    assert "5 images: 5 answered, 0 failed" in output
    assert Counter(rows(out, "results-*")) == Counter("12345")


def test_a_row_without_an_image_is_not_answered_from_the_question_alone(tmp_path: Path) -> None:
    table = tmp_path / "photos.csv"
    table.write_text("id,image\na,s3://photos/a.jpg\nb,\n")
    lines_file = tmp_path / "batch.jsonl"
    lines_file.write_text('{"id": "a", "image": "s3://photos/a.jpg"}\n{"id": "b"}\n')
    for source in (table, lines_file):
        out = tmp_path / source.stem
        code, output, _ = Terminal().run(source, "--skill", "query", "--question", "How many people?", "--out", out)
        assert code == 0
        assert "2 images: 1 answered, 1 failed" in output
        assert [line["id"] for line in lines(out, "errors.jsonl")] == ["b"]


@pytest.mark.parametrize("options", [[], ["--dry-run"]])
@pytest.mark.parametrize(
    ("match", "message"),
    [
        ([], "names that end in .jpg, .jpeg, .png"),
        (["--match", "*.raw"], "names that are like '*.raw'"),
    ],
)
def test_a_folder_without_images_is_not_a_success(
    tmp_path: Path, options: list[str], match: list[str], message: str
) -> None:
    (tmp_path / "notes.txt").write_text("no image")
    terminal = Terminal()
    code, _, errors = terminal.run(tmp_path, "--skill", "caption", "--out", tmp_path / "out", *match, *options)
    assert code == 2
    assert f"there is no image in {tmp_path}" in errors
    assert message in errors
    assert not (tmp_path / "out").exists()


def test_a_file_without_rows_is_not_a_success(tmp_path: Path) -> None:
    (tmp_path / "batch.jsonl").write_text("\n\n")
    code, _, errors = Terminal().run(tmp_path / "batch.jsonl", "--skill", "caption", "--out", tmp_path / "out")
    assert (code, "has no rows" in errors) == (2, True)


def test_the_first_line_of_progress_has_the_total(tmp_path: Path) -> None:
    batch = write_batch(tmp_path, ["a"] * 300)
    _, _, errors = Terminal().run(batch, "--skill", "caption", "--out", tmp_path / "out")
    assert errors.startswith("0 of 300 (0%)")


def test_figures_in_json_have_only_significant_digits(tmp_path: Path, batch: Path) -> None:
    code, output, _ = Terminal().run(batch, "--skill", "caption", "--dry-run", "--rate", "0.7", "--json")
    assert code == 0
    plan = json.loads(output)
    assert (plan["rate"], plan["seconds"]) == (0.7, 7.143)


def test_a_hopeless_run_stops_and_names_the_option_that_resumes_it(tmp_path: Path) -> None:
    batch = write_batch(tmp_path, ["bad"] * 300)
    code, _, errors = Terminal(some_fail).run(
        batch, "--skill", "caption", "--out", tmp_path / "out", "--max-failures", "5%", "--in-flight", "10"
    )
    assert code == 1
    assert "Stopped: more than 5% failed" in errors
    assert "--retry-failed" in errors
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["stopped"] == "max_failures"


def test_a_small_run_with_mostly_failures_is_not_a_success(tmp_path: Path) -> None:
    batch = write_batch(tmp_path, ["bad", "bad", "good"])
    code, output, errors = Terminal(some_fail).run(batch, "--skill", "caption", "--out", tmp_path / "out")
    assert code == 1
    assert "1 answered, 2 failed" in output
    assert "More than 50% failed" in errors
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["finished"]


def test_other_arguments_are_refused_before_any_work(tmp_path: Path, batch: Path) -> None:
    terminal, out = Terminal(), tmp_path / "out"
    assert terminal.run(batch, "--skill", "caption", "--out", out)[0] == 0
    for changed in (["--skill", "caption", "--length", "long"], ["--skill", "caption", "--lane", "slow"]):
        code, _, errors = terminal.run(batch, *changed, "--out", out)
        assert code == 2
        assert "holds another run" in errors
        assert terminal.run(batch, *changed, "--out", out, "--dry-run")[0] == 2
    with batch.open("a") as file:
        file.write(json.dumps({"image": "s3://photos/more.jpg"}) + "\n")
    code, output, _ = terminal.run(batch, "--skill", "caption", "--out", out, "--json")
    assert code == 2
    assert "the source has changed" in json.loads(output)["error"]["message"]
    assert len(terminal.transport.submitted) == 5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--out"),
        (["--out", "out", "--max-failures", "many"], "takes a count such as 50"),
        (["--out", "out", "--temperature", "11"], "temperature"),
        (["--out", "batch.jsonl/out", "--skill", "caption"], "cannot write to"),
        (["--out", "out", "--column", "image"], "--column goes with"),
        (["--out", "out", "--skill", "caption", "--object", "cat"], "--object goes with detect and point"),
    ],
)
def test_wrong_usage_is_reported_before_any_work(
    batch: Path, arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(batch.parent)
    terminal = Terminal()
    code, _, errors = terminal.run(batch, *arguments)
    assert code == 2
    assert message in errors
    assert terminal.transport.submitted == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [([], "give --skill"), (["--skill", "detect"], "detect needs an object"), (["--skill", "query"], "question")],
)
def test_a_folder_needs_to_be_asked_something(tmp_path: Path, arguments: list[str], message: str) -> None:
    code, _, errors = Terminal().run(tmp_path, *arguments, "--out", tmp_path / "out")
    assert code == 2
    assert message in errors


def test_a_dry_run_counts_and_does_nothing(tmp_path: Path, batch: Path) -> None:
    terminal = Terminal()
    code, output, _ = terminal.run(batch, "--skill", "caption", "--dry-run", "--rate", "10", "--json")
    assert code == 0
    plan = json.loads(output)
    assert (plan["rows"], plan["seconds"], plan["rate_from"]) == (5, 0.5, "as given")
    assert terminal.transport.submitted == []
    code, output, _ = terminal.run(batch, "--skill", "caption", "--dry-run", "--out", tmp_path / "out")
    assert code == 0
    assert "not known: give --rate" in output
    assert not (tmp_path / "out").exists()


def test_a_dry_run_names_the_rows_that_cannot_be_jobs(tmp_path: Path) -> None:
    junk = tmp_path / "junk.jsonl"
    junk.write_text('{"a": 1}\nnot json\n{"skill": "caption", "image": "s3://photos/a.jpg"}\n')
    code, output, _ = Terminal().run(junk, "--dry-run")
    assert code == 0
    assert "3, 2 of them no jobs" in output
    assert "1: the row names no skill" in output


def test_a_file_is_refused_as_the_folder_for_results(tmp_path: Path, batch: Path) -> None:
    for more in ([], ["--dry-run"]):
        code, _, errors = Terminal().run(batch, "--skill", "caption", "--out", batch, *more)
        assert code == 2
        assert "is a file: give a folder" in " ".join(errors.split())


def test_a_dry_run_measures_its_rate(tmp_path: Path, batch: Path) -> None:
    terminal = Terminal(some_fail)
    code, output, _ = terminal.run(batch, "--skill", "caption", "--dry-run", "--probe", "3", "--json")
    plan = json.loads(output)
    assert code == 0
    assert len(terminal.transport.submitted) == 3
    assert (plan["rate_from"], plan["measured"], plan["output_tokens"], plan["input_tokens"]) == (
        "measured on 3 rows", True, 25, 5 * 740,
    )  # fmt: skip
    assert plan["seconds"] == pytest.approx(5 / plan["rate"], abs=1e-3)


def test_a_dry_run_knows_the_rate_of_the_sessions_before(tmp_path: Path, batch: Path) -> None:
    terminal, out = Terminal(), tmp_path / "out"
    terminal.run(batch, "--skill", "caption", "--out", out, "--rows", "2")
    _, output, _ = terminal.run(batch, "--skill", "caption", "--out", out, "--dry-run", "--json")
    plan = json.loads(output)
    assert plan["rate"] == json.loads((out / "summary.json").read_text())["rows_per_second"]
    assert plan["rate_from"] == f"measured in {out}"


def test_a_queue_that_is_not_there_is_not_waited_for(tmp_path: Path, batch: Path) -> None:
    class Gone(ScriptedTransport):
        async def submit(self, jobs: Sequence[Job]) -> list[str]:
            raise QueueUnavailable("Redis at nowhere: connection refused")

    terminal = Terminal()
    terminal.transport = Gone()
    code, _, errors = terminal.run(batch, "--skill", "caption", "--out", tmp_path / "out")
    assert code == 3
    assert "Redis at nowhere: connection refused" in errors
    assert "To resume: stoop" in errors
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["stopped"] == "unavailable"
    assert Terminal().run(batch, "--skill", "caption", "--out", tmp_path / "out")[0] == 0
    assert len(rows(tmp_path / "out")) == 5
