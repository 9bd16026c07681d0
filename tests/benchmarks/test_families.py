import json
from pathlib import Path

import pytest

from benchmarks.engine.check import WrongAnswers
from benchmarks.families import forms, run
from benchmarks.families.opened import open_model

WANTED = ["decode", "prompt-850"]
FIGURES = {
    "llama-1b-tiny": ["decode", "decode", "prompt-850", "prompt-850"],
    "qwen3-4b-fp8-tiny": ["decode", "decode", "prompt-850", "prompt-850"],
    "bge-m3-tiny": ["texts-512", "texts-64", "texts-32"],
    "embeddinggemma-tiny": ["texts-512", "texts-64", "texts-32"],
    "whisper-large-v3-turbo-tiny": ["windows", "windows", "hour-mp3", "hour-wav"],
    "qwen3-vl-4b-tiny": ["photo-3", "photo-3", "photo-30", "photo-30"],
}


def words(model: str, *own: str) -> list[str]:
    """Put a command line together: a tiny model on the CPU."""
    return [model, "--device", "cpu", "--dtype", "fp32", "--requests", "8", "--engine", "max_context=2048", *own]


@pytest.mark.parametrize("model", FIGURES)
def test_every_workload_of_a_model_is_measured(model: str, photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "figures.json"
    wanted = dict.fromkeys(name.partition("-mp3")[0].partition("-wav")[0] for name in FIGURES[model])
    document = run.main(
        [*words(model), "--concurrency", "1,3", "--photos", str(photos), "--out", str(out), "--workloads", *wanted]
    )
    assert document["checked"]["same"] == document["checked"]["choices"] > 0
    assert [figure["workload"] for figure in document["figures"]] == FIGURES[model]
    assert {figure["load"] for figure in document["figures"]} <= {1, 3, 64}
    assert all(figure["value"] > 0 for figure in document["figures"])
    assert len(json.loads(out.read_text())["figures"]) == len(FIGURES[model])


def test_nothing_is_timed_if_the_weights_are_others() -> None:
    opened = open_model(run.arguments_of([*words("qwen3-4b-tiny"), "--concurrency", "2"]))
    opened.reference = open_model(run.arguments_of(words("qwen3-4b-fp8-tiny"))).reference
    with pytest.raises(WrongAnswers, match="the mean may be"):
        run.check(opened)


def test_a_workload_that_fails_does_not_stop_the_others(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "figures.json"
    # requests in flight that never decode together have no rate
    command = [*words("llama-1b-tiny"), "max_batch=1", "--concurrency", "2", "--out", str(out), "--workloads", *WANTED]
    with pytest.raises(SystemExit, match="decode failed"):
        run.main(command)
    assert [figure["workload"] for figure in json.loads(out.read_text())["figures"]] == ["prompt-850"]
    assert "prompt-850" in capsys.readouterr().out.splitlines()[-1]


def test_answers_that_are_cut_before_their_grammar_ends_are_named_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = open_model(run.arguments_of([*words("llama-1b-tiny"), "--concurrency", "3"]))
    forms._check(opened)
    monkeypatch.setattr(forms, "_COMPLETE", 3)
    with pytest.raises(WrongAnswers, match="has no end after 3 tokens"):
        forms._check(opened)
