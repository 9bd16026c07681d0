import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from jsonschema import Draft202012Validator

from stoop_schemas.codec import pack
from stoop_schemas.event import Event
from stoop_schemas.export import FOLDER, export, render
from stoop_schemas.job import Job
from stoop_schemas.result import Result
from tests.schemas.invalid import INVALID, ONLY_CHECKED, VALID, VALID_CHANGES
from tests.schemas.strategies import any_events, any_jobs, any_results
from tests.schemas.test_golden import FOREIGN, WRITTEN, read

VALIDATORS = {name.split(".")[0]: Draft202012Validator(json.loads(text)) for name, text in render().items()}


def valid(kind: str, message: Any) -> bool:
    return bool(VALIDATORS[kind].is_valid(message))


@pytest.mark.parametrize("name", render())
def test_the_schema_in_the_repository_is_in_step(name: str) -> None:
    assert (FOLDER / name).read_text(encoding="utf-8") == render()[name], "run: python -m stoop_schemas.export"


def test_the_folder_holds_nothing_else() -> None:
    assert {path.name for path in FOLDER.iterdir()} == set(render())


def test_export_writes_every_schema(tmp_path: Path) -> None:
    export(tmp_path / "json")
    assert {path.name: path.read_text(encoding="utf-8") for path in (tmp_path / "json").iterdir()} == render()


@pytest.mark.parametrize("kind", VALIDATORS)
def test_each_is_a_json_schema(kind: str) -> None:
    Draft202012Validator.check_schema(VALIDATORS[kind].schema)


@pytest.mark.parametrize("name", WRITTEN)
def test_golden_messages_are_valid(name: str) -> None:
    assert valid(name.split("-")[0], json.loads(read("both", name)))


@pytest.mark.parametrize("name", FOREIGN)
def test_messages_of_other_producers_are_valid(name: str) -> None:
    assert valid(name.split("-")[0], json.loads(read("read", name)))


@pytest.mark.parametrize("change", VALID_CHANGES, ids=str)
def test_the_schema_accepts_jobs_that_the_check_accepts(change: dict[str, Any]) -> None:
    assert valid("job", VALID | change)


@pytest.mark.parametrize("change", [change for change, _ in INVALID if (change, _) not in ONLY_CHECKED], ids=str)
def test_the_schema_refuses_jobs_that_the_check_refuses(change: dict[str, Any]) -> None:
    assert not valid("job", VALID | change)


@pytest.mark.parametrize("change", [change for change, _ in ONLY_CHECKED], ids=str)
def test_only_the_check_knows_the_rest(change: dict[str, Any]) -> None:
    assert valid("job", VALID | change)


@pytest.mark.parametrize("change", [{"v": 2}, {"id": None}, {"skill": ""}, {"length": "epic"}], ids=str)
def test_the_schema_refuses_jobs_that_the_codec_refuses(change: dict[str, Any]) -> None:
    assert not valid("job", VALID | change)


@settings(max_examples=50)
@given(any_jobs())
def test_every_job_is_valid(job: Job) -> None:
    assert valid("job", json.loads(pack(job)))


@settings(max_examples=50)
@given(any_events)
def test_every_event_is_valid(event: Event) -> None:
    assert valid("event", json.loads(pack(event)))


@settings(max_examples=50)
@given(any_results)
def test_every_result_is_valid(result: Result) -> None:
    assert valid("result", json.loads(pack(result)))
