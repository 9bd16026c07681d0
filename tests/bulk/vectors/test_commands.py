import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from stoop import AsyncClient
from stoop.cli.app import app
from stoop.config import ProducerConfig
from stoop_schemas.event import Event, FailedEvent, FinishedEvent, QueuedEvent
from stoop_schemas.failure import Failure, FailureCode
from stoop_schemas.job import Job
from tests.bulk.folder import lines
from tests.bulk.vectors.embedding import embedded, read_npy, read_parquet, vector_of, write_texts
from tests.producer.scripted import ScriptedTransport

TOO_LONG = Failure.of(FailureCode.CONTEXT_OVERFLOW, "a text has 9000 tokens: at most 8192")


def answer(job: Job) -> list[Event]:
    if any("long" in text for text in job.input or ()):
        return [QueuedEvent(id=job.id, seq=0), FailedEvent(id=job.id, seq=1, attempt=1, failure=TOO_LONG)]
    return [QueuedEvent(id=job.id, seq=0), FinishedEvent(id=job.id, seq=1, attempt=1, result=embedded(job))]


class Terminal:
    """Runs `stoop bulk-embed` in this process on a scripted queue."""

    def __init__(self, script: Callable[[Job], list[Event]] = answer) -> None:
        self.transport = ScriptedTransport(script)

    def run(self, *arguments: str | Path) -> tuple[int, str, str]:
        done = CliRunner().invoke(
            app,
            ["bulk-embed", *map(str, arguments)],
            obj=lambda config: AsyncClient(config, transport=self.transport),
            env={"COLUMNS": "200"},
        )
        if done.exception and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done.exit_code, done.stdout, done.stderr


@pytest.fixture(autouse=True)
def unconfigured(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ProducerConfig.model_fields:
        monkeypatch.delenv(f"STOOP_{name.upper()}", raising=False)


def expected(numbers: range | list[int]) -> list[tuple[str, str, tuple[float, ...]]]:
    return [(str(number), f"id-{number}", vector_of(f"text {number}")) for number in numbers]


def test_the_folder_of_the_run_must_be_given(tmp_path: Path) -> None:
    code, _, errors = Terminal().run(write_texts(tmp_path / "texts.jsonl", 1))
    assert code == 2
    assert "Missing option '--out'" in errors


@pytest.mark.parametrize(("form", "read"), [("parquet", read_parquet), ("npy", read_npy)])
def test_every_text_has_its_vector_and_bad_ones_are_named(
    tmp_path: Path, form: str, read: Callable[[Path], list[tuple[str, str, tuple[float, ...]]]]
) -> None:
    source, out = write_texts(tmp_path / "texts.jsonl", 23, bad={4}, long={9}), tmp_path / "out"
    terminal = Terminal()
    arguments = (source, "--out", out, "--texts-per-job", "5", "--shard-rows", "7", "--format", form)
    code, output, errors = terminal.run(*arguments, "--model", "bge-m3", "--prompt-name", "query")
    assert code == 0, errors
    assert "23 texts: 21 answered, 2 failed" in output
    assert f"vectors-00000.{form} … vectors-00002.{form}" in output
    good = [number for number in range(1, 24) if number not in (4, 9)]
    assert sorted(read(out), key=lambda each: int(each[0])) == expected(good)
    failed = {line["row"]: (line["id"], line["failure"]["code"]) for line in lines(out, "errors.jsonl")}
    assert failed == {"4": ("4", "malformed"), "9": ("id-9", "context_overflow")}
    assert not list(out.glob("results-*")), "lines become shards, and stay nowhere else"
    assert {(job.model, job.prompt_name, job.lane) for job in terminal.transport.submitted} == {
        ("bge-m3", "query", "bulk")
    }
    asked = len(terminal.transport.submitted)
    assert terminal.run(*arguments, "--model", "bge-m3", "--prompt-name", "query")[0] == 0
    assert len(terminal.transport.submitted) == asked, "a run that is done does nothing"


def test_only_the_text_that_is_too_long_fails(tmp_path: Path) -> None:
    source, out, terminal = write_texts(tmp_path / "t.jsonl", 64, long={40}), tmp_path / "out", Terminal()
    code, _, errors = terminal.run(source, "--out", out)
    assert code == 0, errors
    assert len(read_parquet(out)) == 63
    # halves of 64 with the text in them, and their other halves: 1 + 2 * 6
    assert len(terminal.transport.submitted) == 13


def test_failed_texts_are_tried_again_without_the_others(tmp_path: Path) -> None:
    source, out = write_texts(tmp_path / "t.jsonl", 20, bad={3}, long={5, 6, 17}), tmp_path / "out"
    assert Terminal().run(source, "--out", out, "--texts-per-job", "10")[0] == 0
    assert len(read_parquet(out)) == 16

    def cut(job: Job) -> list[Event]:
        return [FinishedEvent(id=job.id, seq=0, attempt=1, result=embedded(job))]

    again = Terminal(cut)
    code, output, errors = again.run(source, "--out", out, "--texts-per-job", "10", "--retry-failed")
    assert code == 0, errors
    assert "20 texts: 19 answered, 1 failed" in output
    tried = sorted(text for job in again.transport.submitted for text in job.input or ())
    assert tried == ["text 17 long", "text 5 long", "text 6 long"]
    rows = Counter(row for row, _, _ in read_parquet(out))
    assert rows == Counter(str(number) for number in range(1, 21) if number != 3)


def test_answers_are_removed_from_the_queue_once_they_are_written(tmp_path: Path) -> None:
    source, terminal = write_texts(tmp_path / "t.jsonl", 20), Terminal()
    assert terminal.run(source, "--out", tmp_path / "out", "--texts-per-job", "4")[0] == 0
    assert sorted(terminal.transport.forgotten) == sorted(job.id for job in terminal.transport.submitted)


def test_a_lost_index_is_rebuilt_from_the_shards(tmp_path: Path) -> None:
    source, out = write_texts(tmp_path / "t.jsonl", 20), tmp_path / "out"
    for form in ("parquet", "npy"):
        arguments = (source, "--out", out / form, "--shard-rows", "6", "--texts-per-job", "5", "--format", form)
        assert Terminal().run(*arguments)[0] == 0
        for path in (out / form).glob(".index*"):
            path.unlink()
        terminal = Terminal()
        code, output, errors = terminal.run(*arguments)
        assert (code, "20 texts: 20 answered" in output) == (0, True), errors
        assert not terminal.transport.submitted


def test_a_deleted_shard_is_embedded_again(tmp_path: Path) -> None:
    source, out = write_texts(tmp_path / "t.jsonl", 20), tmp_path / "out"
    arguments = (source, "--out", out, "--shard-rows", "6", "--texts-per-job", "5")
    assert Terminal().run(*arguments)[0] == 0
    (out / "vectors-00001.parquet").unlink()
    assert Terminal().run(*arguments)[0] == 0
    assert sorted(read_parquet(out), key=lambda each: int(each[0])) == expected(range(1, 21))


def test_a_run_with_other_arguments_or_without_a_source_is_refused(tmp_path: Path) -> None:
    source, out = write_texts(tmp_path / "t.jsonl", 5), tmp_path / "out"
    assert Terminal().run(source, "--out", out)[0] == 0
    for arguments, reason in (
        ((source, "--out", out, "--dimensions", "8"), "holds another run, with dimensions None and not 8"),
        ((source, "--out", out, "--format", "npy"), "holds another run, with format"),
        ((tmp_path / "none.jsonl", "--out", tmp_path / "b"), "there is no file"),
        ((source, "--out", source), "is a file: give a folder"),
        ((source, "--out", tmp_path / "b", "--vectors", "/data"), "is not an s3://bucket/prefix"),
        ((source, "--out", tmp_path / "b", "--format", "npy", "--kind", "sparse"), "give --format parquet"),
        ((source, "--out", tmp_path / "b", "--column", "body"), None),
    ):
        code, output, errors = Terminal().run(*arguments)
        if reason is None:
            assert (code, "5 texts: 0 answered, 5 failed" in output) == (1, True)
            continue
        assert (code, reason in errors) == (2, True), errors
    (tmp_path / "c").mkdir()
    (out / "vectors-00000.parquet").rename(tmp_path / "c" / "vectors-00000.parquet")
    code, _, errors = Terminal().run(source, "--out", tmp_path / "c")
    assert (code, "has shards of another run" in errors) == (2, True)


def test_the_summary_counts_tokens_once(tmp_path: Path) -> None:
    source = write_texts(tmp_path / "t.jsonl", 10)
    _, output, _ = Terminal().run(source, "--out", tmp_path / "out", "--texts-per-job", "4", "--json")
    summary = json.loads(output)
    assert (summary["completed"], summary["input_tokens"], summary["finished"]) == (10, 30, True)
    assert summary["shards"] == ["vectors-00000.parquet"]
