"""`--out` is a path on this machine: of an address in an object store, no folder `s3:` is made."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from stoop.cli.app import app


@pytest.mark.parametrize(
    "command",
    [
        ["export", "results.jsonl", "--format", "srt"],
        ["draw", "results.jsonl"],
        ["bulk", "texts.jsonl", "--skill", "transcribe"],
        ["bulk-embed", "texts.jsonl"],
    ],
    ids=lambda command: command[0],
)
def test_an_address_of_an_object_store_is_refused(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("results.jsonl", "texts.jsonl"):
        (tmp_path / name).write_text("{}\n")
    ran = CliRunner().invoke(app, [*command, "--out", "s3://subtitles/monday"])
    assert (ran.exit_code, "give a path" in ran.stderr) == (2, True), ran.output
    assert not (tmp_path / "s3:").exists()
